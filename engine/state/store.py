"""Saved state of all conversations with one model: finds the longest usable prefix, writes in the background, keeps a budget."""

from __future__ import annotations

import logging
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from engine.chat.prompt import Prompt
from engine.errors import BadState
from engine.state.index import IndexedSegment, StateIndex
from engine.state.segment import SUFFIX, Segment, SegmentHead, read_chain, text_digest, write_segment

log = logging.getLogger(__name__)
SHARE_OF_FREE_DISK = 0.1
LEAST_CUT_TOKENS = 16  # a smaller part of a segment is read again sooner than its file is opened and verified
_STALE_SECONDS = 3600  # a temporary file this old has no writer any more


@dataclass(frozen=True)
class RestoredPrefix:
    """Verified segments that cover the first `length` tokens of a prompt; the last one may be cut."""

    length: int
    segments: tuple[Segment, ...]
    read_ms: float


@dataclass(frozen=True)
class _Job:
    conversation: str
    head: SegmentHead
    tensors: Mapping[str, Tensor]


@dataclass
class StateStore:
    """`folder` may be shared by processes and models; `cut_anywhere` tells whether a segment may be used in part."""

    folder: Path
    model: str
    layout: str
    cut_anywhere: bool
    budget_bytes: int | None = None
    _jobs: queue.SimpleQueue[_Job | threading.Event | None] = field(default_factory=queue.SimpleQueue)
    _notices: list[str] = field(default_factory=list)
    _in_use: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Open or make the folder. Raises BadState when it cannot be used."""
        try:
            self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
            for part in self._place.glob(".*.part"):
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink(missing_ok=True)
            self._index = StateIndex(self.folder)
            self._index.adopt(self._place.glob(f"*{SUFFIX}"))
            if self.budget_bytes is None:
                self.budget_bytes = int(
                    (shutil.disk_usage(self.folder).free + self._index.total_bytes()) * SHARE_OF_FREE_DISK
                )
        except (OSError, sqlite3.Error) as problem:
            raise BadState(f"Conversation state cannot be kept in {self.folder}: {problem}.") from problem
        self._thread = threading.Thread(target=self._write_all, name="state writer", daemon=True)
        self._thread.start()

    @property
    def _place(self) -> Path:
        return self.folder / self.model

    def _path(self, key: str) -> Path:
        return self._place / f"{key}{SUFFIX}"

    # ------------------------------------------------------------------ reading

    def restore(self, prompt: Prompt, at_least: int, conversation: str) -> RestoredPrefix | None:
        """The longest saved prefix of a prompt, verified, if it has more than `at_least` tokens; else None.

        Damaged segments are removed and said in `take_notices`; whatever lies before them is still used.
        """
        start = time.perf_counter()
        try:
            chain, length = self._longest(prompt, "", 0)
            if length <= at_least:
                return None
            segments = self._read(chain)
            if len(segments) < len(chain):
                length = chain[len(segments)].start
            if length <= at_least:
                return None
            self._index.touch([segment.head.key for segment in segments], conversation)
        except (OSError, sqlite3.Error, ValueError) as problem:
            self._notice(f"Saved state could not be used ({problem}); the conversation is read again.")
            return None
        return RestoredPrefix(length, tuple(segments), 1e3 * (time.perf_counter() - start))

    def _read(self, chain: list[IndexedSegment]) -> list[Segment]:
        """The chain, or what lies before its first damaged segment, which is removed."""
        while chain:
            segments: list[Segment] = []
            try:
                for segment in read_chain([self._path(step.key) for step in chain]):
                    if (segment.head.model, segment.head.layout) != (self.model, self.layout):
                        raise BadState(f"{segment.head.key}{SUFFIX} belongs to another model or layout.")
                    segments.append(segment)
                return segments
            except BadState as problem:
                self._discard(chain[len(segments)].key, problem)
            chain = chain[: len(segments)]  # read again: what is now the last one's frontiers were left out
        return []

    def _longest(self, prompt: Prompt, parent: str, done: int) -> tuple[list[IndexedSegment], int]:
        """Deepest chain below `parent` that matches; at least one token of the prompt is left to be read."""
        best: tuple[list[IndexedSegment], int] = ([], done)
        for child in self._index.children(self.model, self.layout, parent):
            if child.start != done:
                continue
            reach = self._matching(prompt, child)
            if reach == child.stop and reach < len(prompt):
                chain, length = self._longest(prompt, child.key, reach)
                chain = [child, *chain]
            elif self.cut_anywhere and min(reach, len(prompt) - 1) - done >= LEAST_CUT_TOKENS:
                chain, length = [child], min(reach, len(prompt) - 1)
            else:
                continue
            if length > best[1]:
                best = (chain, length)
        return best

    @staticmethod
    def _matching(prompt: Prompt, child: IndexedSegment) -> int:
        """First token where prompt and segment differ, pictures compared by content."""
        ids = prompt.ids[child.start : child.stop]
        same = next((i for i, (a, b) in enumerate(zip(ids, child.token_ids, strict=False)) if a != b), None)
        reach = child.start + (min(len(ids), len(child.token_ids)) if same is None else same)
        ours = {span.start: span.image.digest for span in prompt.spans}
        theirs = {span.start: span.digest for span in child.spans}
        for start in sorted(ours.keys() | theirs.keys()):
            if child.start <= start < reach and ours.get(start) != theirs.get(start):
                return start
        return reach

    def _discard(self, key: str, problem: BadState) -> None:
        for lost in self._index.descendants(key):
            self._path(lost).unlink(missing_ok=True)
        self._index.remove(key)
        self._notice(f"Saved state of this conversation was damaged and is not used; it is read again. ({problem})")

    def answer_ids(self, text: str) -> list[int] | None:
        """Exact ids of an answer the model once wrote, so that reading it again meets the saved state."""
        try:
            return self._index.answer_ids(self.model, text_digest(text))
        except (sqlite3.Error, ValueError):
            return None

    def take_notices(self) -> list[str]:
        """Sentences for the person since the last call."""
        with self._lock:
            notices, self._notices = self._notices, []
        return notices

    def _notice(self, sentence: str) -> None:
        log.warning("%s", sentence)
        with self._lock:
            if sentence not in self._notices:
                self._notices.append(sentence)

    # ------------------------------------------------------------------ writing

    def seal(self, conversation: str, head: SegmentHead, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """Hand a segment to the writer; `tensors` is called now and must copy. Never blocks on the disk, never raises
        for the sake of saving: an answer is worth more than its state."""
        try:
            if self._index.has(head.key):
                self._index.touch([head.key], conversation)
                return
        except (OSError, sqlite3.Error) as problem:
            self._notice(f"The state of a conversation could not be saved ({problem}); it will be read again later.")
            return
        with self._lock:
            self._in_use[head.key] = self._in_use.get(head.key, 0) + 1
        self._jobs.put(_Job(conversation, head, tensors()))

    def holds(self, key: str) -> bool:
        """Whether a segment is saved or on its way to the disk; one that failed or was evicted is not."""
        with self._lock:
            if key in self._in_use:
                return True
        try:
            return self._index.has(key)
        except (OSError, sqlite3.Error):
            return False

    def flush(self) -> None:
        """Wait until everything handed over is on the disk (or refused)."""
        done = threading.Event()
        self._jobs.put(done)
        done.wait()

    def close(self) -> None:
        """Write what is left and stop."""
        self._jobs.put(None)
        self._thread.join()
        self._index.close()

    def _write_all(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, threading.Event):
                job.set()
                continue
            try:
                self._write(job)
            except (OSError, sqlite3.Error) as problem:
                reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
                self._notice(f"The state of a conversation could not be saved ({reason}); it will be read again later.")
            finally:
                with self._lock:
                    self._in_use[job.head.key] -= 1
                    if not self._in_use[job.head.key]:
                        del self._in_use[job.head.key]

    def _write(self, job: _Job) -> None:
        if job.head.parent and not self._index.has(job.head.parent):
            return  # what it builds on was not saved or is gone; alone it could never be restored
        self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._index.claim(job.head.key, job.conversation)
        path = write_segment(self._place, job.head, job.tensors)
        self._index.add(job.head, path.stat().st_size, job.conversation)
        self._keep_budget(job.head.key)

    def _keep_budget(self, fresh: str) -> None:
        """Remove cold leaves until the budget holds; never the one just written, one in use, or their ancestors."""
        assert self.budget_bytes is not None
        while self._index.total_bytes() > self.budget_bytes:
            with self._lock:
                spared = {fresh, *self._in_use}
            leaf = self._index.coldest_leaf(spared)
            if leaf is None:
                return
            self._index.remove(leaf.key)
            for path in self.folder.glob(f"*/{leaf.key}{SUFFIX}"):
                path.unlink(missing_ok=True)

    def delete(self, conversation: str) -> None:
        """Forget a conversation and delete its segments that no other conversation shares."""
        self.flush()
        delete_conversation(self._index, self.folder, conversation)


def delete_conversation(index: StateIndex, folder: Path, conversation: str) -> None:
    """Remove a conversation's unshared segments of any model."""
    for key in index.release(conversation):
        for path in folder.glob(f"*/{key}{SUFFIX}"):
            path.unlink(missing_ok=True)
