"""Looks after a folder of saved state from outside: list, verify, prune. Needs no model."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from engine.errors import BadState
from engine.state.index import StateIndex
from engine.state.segment import SUFFIX, read_segment
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
