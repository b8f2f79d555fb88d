"""Looks after a folder of saved state from outside: list, verify, prune. Needs no model."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import BadState
from engine.state.index import StateIndex
from engine.state.segment import SUFFIX, SegmentHead, read_segment, sync_folder
from engine.state.store import delete_conversation


@dataclass(frozen=True)
class SavedSegment:
    """One file of saved state."""

    key: str
    model: str
    start: int
    stop: int
    nbytes: int
    conversations: tuple[str, ...]


def _index(folder: Path) -> StateIndex:
    if not folder.is_dir():
        raise BadState(f"There is no saved state in {folder}.")
    try:
        return StateIndex(folder)
    except (OSError, sqlite3.Error) as problem:
        raise BadState(f"The saved state in {folder} cannot be read: {problem}.") from problem


def list_saved(folder: Path) -> list[SavedSegment]:
    """All segments, coldest first. Raises BadState."""
    index = _index(folder)
    try:
        return [SavedSegment(k, m, a, b, n, tuple(users)) for k, m, a, b, n, users in index.everything()]
    finally:
        index.close()


def verify_saved(folder: Path) -> list[str]:
    """Check every byte of every file; returns one sentence per fault. Damaged files are left where they are."""
    index, faults = _index(folder), []
    try:
        indexed = {key for key, *_ in index.everything()}
        paths = sorted(folder.glob(f"*/*{SUFFIX}"))
        on_disk = {path.name.removesuffix(SUFFIX) for path in paths}
        for path in paths:
            key = path.name.removesuffix(SUFFIX)
            try:
                head = read_segment(path).head
                if head.model != path.parent.name:
                    faults.append(f"{path.name} lies in the folder of another model.")
                elif head.parent and head.parent not in on_disk:
                    faults.append(f"{path.name} builds on a segment that is missing.")
                elif key not in indexed:
                    faults.append(f"{path.name} is not in the index.")
            except BadState as problem:
                faults.append(str(problem))
        faults += [f"{key}{SUFFIX} is in the index but not on the disk." for key in sorted(indexed - on_disk)]
    finally:
        index.close()
    return faults


def prune_saved(folder: Path, keep_bytes: int) -> tuple[int, int]:
    """Remove damaged files, then cold leaves until at most `keep_bytes` are left; returns (files, bytes) removed."""
    index, files, freed = _index(folder), 0, 0

    def drop(key: str) -> None:
        nonlocal files, freed
        for path in folder.glob(f"*/{key}{SUFFIX}"):
            files, freed = files + 1, freed + path.stat().st_size
            path.unlink(missing_ok=True)

    try:
        for path in sorted(folder.glob(f"*/*{SUFFIX}")):
            try:
                read_segment(path)
            except BadState:
                for key in index.descendants(path.name.removesuffix(SUFFIX)):
                    drop(key)
                index.remove(path.name.removesuffix(SUFFIX))
        for key, *_ in index.everything():
            if not any(folder.glob(f"*/{key}{SUFFIX}")):
                index.remove(key)
        while index.total_bytes() > keep_bytes and (leaf := index.coldest_leaf(set())) is not None:
            drop(leaf.key)
            index.remove(leaf.key)
    finally:
        index.close()
    return files, freed


def delete_saved(folder: Path, conversation: str) -> None:
    """Remove the unshared state of one conversation; quietly does nothing when there is none."""
    if not folder.is_dir():
        return
    index = _index(folder)
    try:
        delete_conversation(index, folder, conversation)
    finally:
        index.close()


def export_saved(folder: Path, conversation: str, target: Path) -> list[Path]:
    """Copy the whole chain of a conversation's segments into `target`; damaged ones and what builds on them stay behind."""
    if not folder.is_dir():
        return []
    index, copies, good = _index(folder), [], {""}
    try:
        own = [row for row in index.everything() if conversation in row[5]]
        for key, model, *_ in sorted(own, key=lambda row: row[2]):
            path = folder / model / f"{key}{SUFFIX}"
            try:
                parent = read_segment(path).head.parent
                if parent in good:
                    copies.append(Path(shutil.copy2(path, target)))
                    good.add(key)
            except (BadState, OSError):
                continue
    finally:
        index.close()
    return copies


def import_saved(folder: Path, files: Sequence[Path], conversation: str) -> int:
    """Take over segments that `export_saved` wrote, all or none; returns how many are new here.

    Every byte is verified, every chain must begin at its beginning, and a segment that is already here stays as it is.
    Raises BadState.
    """
    heads = [read_segment(path).head for path in files]
    by_key = {head.key: head for head in heads}
    for head in heads:
        above = by_key.get(head.parent)
        if (above is None) != (not head.parent) or head.start != (0 if above is None else above.stop):
            raise BadState(f"{head.key}{SUFFIX} builds on a segment that is not there.")
        if above is not None and (above.model, above.layout) != (head.model, head.layout):
            raise BadState(f"{head.key}{SUFFIX} builds on the state of another model.")
        if not re.fullmatch(r"[0-9a-f]{8,128}", head.model):
            raise BadState(f"{head.key}{SUFFIX} does not say which model it belongs to.")
    fresh = 0
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        index = _index(folder)
        try:
            for head, path in sorted(zip(heads, files, strict=True), key=lambda pair: pair[0].start):
                fresh += _take_over(folder, index, head, path, conversation)
        finally:
            index.close()
    except OSError as problem:
        raise BadState(f"The state could not be stored: {problem.strerror or problem}.") from problem
    return fresh


def _take_over(folder: Path, index: StateIndex, head: SegmentHead, path: Path, conversation: str) -> int:
    place = folder / head.model
    place.mkdir(exist_ok=True, mode=0o700)
    target = place / f"{head.key}{SUFFIX}"
    if target.exists() and index.has(head.key):
        index.touch([head.key], conversation)
        return 0
    beside = place / f".{head.key}.{os.getpid()}.import.part"
    try:
        shutil.copyfile(path, beside)
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        beside.replace(target)
        sync_folder(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    index.add(head, target.stat().st_size, conversation)
    return 1
