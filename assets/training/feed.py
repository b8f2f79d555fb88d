"""Batches for training, made by processes beside the one that trains. Knows documents and shares, no model."""

from __future__ import annotations

import gc
import itertools
import json
import mmap
import multiprocessing as mp
import os
import queue
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from tokenizers import Tokenizer

from assets.training.chats.mix import Chat, chat_document, long_document, read_lines, template_document
from assets.training.documents import ROW_PATCHES, Document, Encoded, Encoder, Packer
from assets.training.material import Material
from assets.training.model.twin import TokenRows
from assets.training.pictures.mix import picture_document
from assets.training.shape import Shape

SLOTS = {False: 4, True: 2}  # batches with short and with long rows that are in the making


@dataclass(frozen=True)
class BatchSize:
    """rows x tokens, and patch rows, of one part; a batch joins `parts` of them."""

    rows: int
    tokens: int
    patch_rows: int
    parts: int


@dataclass(frozen=True)
class Plan:
    """Sizes of both kinds of batch, and how much of what they hold. Shares are of documents, not tokens."""

    short: BatchSize = BatchSize(8, 512, 12, 16)
    long: BatchSize = BatchSize(2, 2048, 12, 16)  # as many tokens and patches, so that most graphs serve both
    long_every: int = 10  # each so many steps one batch has long rows
    picture_share: float = 0.6
    template_share: float = 0.35  # of what is not a picture; the rest are teacher chats

    def of_parts(self, parts: int) -> Plan:
        """Smaller or larger batches of the same."""
        return replace(self, short=replace(self.short, parts=parts), long=replace(self.long, parts=parts))


TINY_PLAN = Plan(BatchSize(2, 384, 3, 1), BatchSize(1, 768, 3, 1), long_every=4)


class Chats(Sequence[Chat]):
    """Teacher chats as one block of bytes: counting references to a million strings would copy their pages into every
    process."""

    def __init__(self, files: Sequence[Path]) -> None:
        lines = [line for path in files for line in read_lines(path)]
        self._ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
        self._bytes = b"".join(lines)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, number: int) -> Chat: ...
    @overload
    def __getitem__(self, number: slice) -> list[Chat]: ...
    def __getitem__(self, number: int | slice) -> Chat | list[Chat]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        start = int(self._ends[number - 1]) if number else 0
        chat: Chat = json.loads(self._bytes[start : int(self._ends[number])])
        return chat


class SharedBatch:
    """Room for a whole batch in memory that forked processes share; each fills its own part in place.

    An anonymous mapping, because /dev/shm is small in some containers."""

    def __init__(self, size: BatchSize) -> None:
        self.size = size
        rows, patch_rows = size.rows * size.parts, size.patch_rows * size.parts
        text, patches = (rows, size.tokens), (patch_rows, ROW_PATCHES)
        fields: dict[str, tuple[tuple[int, ...], Any]] = {
            "ids": (text, np.int16), "weight": (text, np.uint8), "positions": ((3, *text), np.int16),
            "document": (text, np.int16), "slot": (text, np.int32), "patches": ((*patches, 768), np.uint8),
            "picture": (patches, np.int16), "place": ((*patches, 4), np.uint8),
        }  # fmt: skip
        self.arrays: dict[str, np.ndarray] = {}
        for name, (shape, kind) in fields.items():
            memory = mmap.mmap(-1, int(np.prod(shape)) * np.dtype(kind).itemsize)
            self.arrays[name] = np.frombuffer(memory, kind).reshape(shape)

    def put(self, number: int, part: TokenRows) -> None:
        """Part `number`; the rows of its pictures are counted from the start of the batch."""
        size = self.size
        rows = slice(number * size.rows, (number + 1) * size.rows)
        patches = slice(number * size.patch_rows, (number + 1) * size.patch_rows)
        newline = size.patch_rows * ROW_PATCHES // 4
        slot = part.slot.numpy()
        moved = np.where(slot == newline, newline * size.parts, slot + newline * number)
        self.arrays["slot"][rows] = np.where(slot < 0, slot, moved)
        self.arrays["positions"][:, rows] = part.positions.numpy()
        for name in ("ids", "weight", "document"):
            self.arrays[name][rows] = getattr(part, name).numpy()
        for name in ("patches", "picture", "place"):
            self.arrays[name][patches] = getattr(part, name).numpy()

    def take(self, pinned: bool) -> TokenRows:
        """A copy; `pinned`: in memory from which a GPU copies without waiting."""
        copies = {}
        for name, array in self.arrays.items():
            shared = torch.from_numpy(array)
            copies[name] = torch.empty(shared.shape, dtype=shared.dtype, pin_memory=pinned).copy_(shared)
        return TokenRows(**copies)


class DataMaker:
    """Makes parts of batches in one process."""

    def __init__(self, work: Path, shape: Shape, plan: Plan, chats: Sequence[Chat], seed: int) -> None:
        self.material, self.plan, self.chats = Material.load(work), plan, chats
        self.encoder = Encoder(Tokenizer.from_file(str(work / "tokenizer.json")), shape)
        self.rng = random.Random(seed)
        self.chat_share = 1.0

    def text(self) -> Document:
        rng = self.rng
        if not self.chats or rng.random() < self.plan.template_share or rng.random() > self.chat_share:
            return template_document(rng, self.material)
        return chat_document(rng.choice(self.chats))

    def any_document(self, pictures: bool) -> Document:
        if pictures and self.rng.random() < self.plan.picture_share:
            return picture_document(self.rng, self.material)
        return self.text()

    def part(self, size: BatchSize) -> TokenRows:
        """Rows filled as far as documents fit; a picture that finds no room is replaced by text."""
        packer = Packer(size.rows, size.tokens, size.patch_rows)
        for row in range(size.rows):
            if size.tokens > self.plan.short.tokens:
                self._fill_long(packer, row)
            misses = 0
            while packer.room(row) > 24 and misses < 4:
                made = self.encoder.encode(self.any_document(packer.patches_left() > 64))
                misses += not packer.add(row, made)
        return packer.finish()

    def _fill_long(self, packer: Packer, row: int) -> None:
        """One long conversation; what does not fit as a whole is tried shorter."""
        share = packer.size[1] - 8
        pictures = packer.patches_left() // (2 * max(1, packer.size[0] - row))

        def other() -> Document:
            nonlocal pictures
            if pictures > 0 and self.rng.random() < 0.25:
                document = picture_document(self.rng, self.material, 3)
                pictures -= sum(len(t.pictures) for t in document.turns) * 128
                return document
            return self.text()

        for most in (share, share // 2, share // 4):
            if packer.add(row, self.encoder.encode(long_document(self.rng, other, self._count, most))):
                return

    def _count(self, document: Document) -> int:
        return len(self.encoder.encode(document).ids)


def held_documents(maker: DataMaker, chats: list[Chat], count: int) -> dict[str, list[Encoded]]:
    """Fixed documents for held-out losses: teacher chats of unseen prompts, and new pictures."""
    rng = random.Random(99)
    text = [maker.encoder.encode(chat_document(c)) for c in chats[: 4 * count]]
    pictures = [maker.encoder.encode(picture_document(rng, maker.material)) for _ in range(count)]
    return {name: made for name, made in {"text": text, "picture": pictures}.items() if made}


class Feeder:
    """Starts the processes and hands out whole batches. With 0 processes it works in this one (tests)."""

    def __init__(
        self,
        work: Path,
        shape: Shape,
        plan: Plan,
        chat_files: Sequence[Path],
        processes: int,
        seed: int,
        pinned: bool = False,
    ) -> None:
        self.plan, self.pinned = plan, pinned
        self.chats = Chats(chat_files)
        self._own = DataMaker(work, shape, plan, self.chats, seed) if processes == 0 else None
        self._batches = [(long, SharedBatch(self._size(long))) for long, count in SLOTS.items() for _ in range(count)]
        context = mp.get_context("fork")
        self._share: Synchronized[float] = context.Value("d", 1.0)
        self._tasks: mp.Queue[tuple[int, int]] = context.Queue()  # number of the batch, number of the part
        self._done: mp.Queue[int] = context.Queue()
        parent = os.getpid()
        self._workers = [
            context.Process(target=self._work, args=(work, shape, seed * 1000 + i, parent), daemon=True)
            for i in range(processes)
        ]
        gc.collect()
        gc.freeze()  # else the first collection in every process touches, and so copies, all pages
        for worker in self._workers:
            worker.start()
        gc.unfreeze()
        self.waited_seconds = 0.0
        self._ready: queue.Queue[tuple[bool, TokenRows] | BaseException] = queue.Queue(3)

    def _size(self, long: bool) -> BatchSize:
        return self.plan.long if long else self.plan.short

    def _is_long(self, step: int) -> bool:
        return step % self.plan.long_every == self.plan.long_every - 1

    def _work(self, work: Path, shape: Shape, seed: int, parent: int) -> None:
        torch.set_num_threads(1)
        maker = DataMaker(work, shape, self.plan, self.chats, seed)
        failures = 0
        while True:
            try:
                number, part = self._tasks.get(timeout=5)
            except queue.Empty:
                if os.getppid() != parent:  # killed without a chance to stop this process
                    return
                continue
            long, batch = self._batches[number]
            maker.chat_share = self._share.value
            while True:
                try:
                    made = maker.part(self._size(long))
                    break
                except Exception:  # one odd document in a million must not end a run on a GPU
                    traceback.print_exc()
                    failures += 1
                    if failures > 20:
                        raise
            batch.put(part, made)
            self._done.put(number)

    def lower_chats(self, share: float) -> None:
        """Fewer teacher chats from now on, once they are known by heart."""
        self._share.value = share
        if self._own is not None:
            self._own.chat_share = share

    def batches(self, first_step: int) -> Iterator[tuple[bool, TokenRows]]:
        """(is long, batch) for every step from `first_step` on; a thread gathers the next ones meanwhile."""
        if self._own is not None:
            yield from map(self._made_here, itertools.count(first_step))
        threading.Thread(target=self._gather_ahead, args=(first_step,), daemon=True).start()
        while True:
            start = time.monotonic()
            ready = self._ready.get()
            self.waited_seconds += time.monotonic() - start
            if isinstance(ready, BaseException):
                raise ready
            yield ready

    def _made_here(self, step: int) -> tuple[bool, TokenRows]:
        assert self._own is not None
        long = self._is_long(step)
        batch = next(b for kind, b in self._batches if kind == long)
        for number in range(batch.size.parts):
            batch.put(number, self._own.part(batch.size))
        return long, batch.take(self.pinned)

    def _gather_ahead(self, first_step: int) -> None:
        try:
            self._gather(first_step)
        except BaseException as problem:
            self._ready.put(problem)

    def _gather(self, first_step: int) -> None:
        """Asks for the parts of the next batches in order, and hands out the oldest when all its parts are there."""
        free = {kind: deque(i for i, (k, _) in enumerate(self._batches) if k == kind) for kind in SLOTS}
        asked: deque[int] = deque()
        missing = [0] * len(self._batches)
        next_step = first_step
        while True:
            while free[self._is_long(next_step)]:
                number = free[self._is_long(next_step)].popleft()
                asked.append(number)
                missing[number] = self._batches[number][1].size.parts
                for part in range(missing[number]):
                    self._tasks.put((number, part))
                next_step += 1
            while missing[asked[0]]:
                try:
                    missing[self._done.get(timeout=10)] -= 1
                except queue.Empty:
                    assert all(w.is_alive() for w in self._workers), "a process that makes data has died"
            number = asked.popleft()
            long, batch = self._batches[number]
            self._ready.put((long, batch.take(self.pinned)))
            free[long].append(number)

    def close(self) -> None:
        for worker in self._workers:
            worker.terminate()
