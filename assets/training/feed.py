"""Batches for training, made by processes beside the one that trains. Knows documents and shares, no model."""

from __future__ import annotations

import itertools
import multiprocessing as mp
import queue
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from assets.training.chats.mix import Chat, chat_document, long_document, read_chats, template_document
from assets.training.documents import Document, Encoded, Encoder, Packer, join
from assets.training.material import Material
from assets.training.model.twin import TokenRows
from assets.training.pictures.mix import picture_document
from assets.training.shape import Shape


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
    long: BatchSize = BatchSize(2, 2048, 6, 8)
    long_every: int = 5  # each so many steps one batch has long rows
    picture_share: float = 0.6
    template_share: float = 0.35  # of what is not a picture; the rest are teacher chats


TINY_PLAN = Plan(BatchSize(2, 384, 3, 1), BatchSize(1, 768, 3, 1), long_every=4)


class DataMaker:
    """Makes parts of batches in one process."""

    def __init__(self, work: Path, shape: Shape, plan: Plan, chats: list[Chat], seed: int) -> None:
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

    def __init__(self, work: Path, shape: Shape, plan: Plan, chat_files: list[Path], processes: int, seed: int) -> None:
        self.plan = plan
        self.chats = [chat for path in chat_files for chat in read_chats(path)]
        self._own = DataMaker(work, shape, plan, self.chats, seed) if processes == 0 else None
        context = mp.get_context("fork")
        self._share: Synchronized[float] = context.Value("d", 1.0)
        self._queues: dict[bool, Any] = {
            False: context.Queue(4 * plan.short.parts),
            True: context.Queue(2 * plan.long.parts),
        }
        self._workers = [
            context.Process(target=self._work, args=(work, shape, seed * 1000 + i), daemon=True)
            for i in range(processes)
        ]
        for worker in self._workers:
            worker.start()
        self.waited_seconds = 0.0
        self._ready: queue.Queue[tuple[bool, TokenRows] | BaseException] = queue.Queue(3)

    def _work(self, work: Path, shape: Shape, seed: int) -> None:
        torch.set_num_threads(1)
        maker = DataMaker(work, shape, self.plan, self.chats, seed)
        turn = 0
        ratio = self.plan.short.parts * (self.plan.long_every - 1) // self.plan.long.parts + 1
        while True:
            turn += 1
            long = turn % ratio == 0
            maker.chat_share = self._share.value
            made = maker.part(self.plan.long if long else self.plan.short)
            self._queues[long].put({k: v.numpy() for k, v in vars(made).items()})

    def lower_chats(self, share: float) -> None:
        """Fewer teacher chats from now on, once they are known by heart."""
        self._share.value = share
        if self._own is not None:
            self._own.chat_share = share

    def batches(self, first_step: int) -> Iterator[tuple[bool, TokenRows]]:
        """(is long, batch) for every step from `first_step` on; a thread joins the next ones meanwhile."""
        if self._own is not None:
            yield from map(self._batch, itertools.count(first_step))
        threading.Thread(target=self._join_ahead, args=(first_step,), daemon=True).start()
        while True:
            start = time.monotonic()
            ready = self._ready.get()
            self.waited_seconds += time.monotonic() - start
            if isinstance(ready, BaseException):
                raise ready
            yield ready

    def _join_ahead(self, first_step: int) -> None:
        try:
            for step in itertools.count(first_step):
                long, rows = self._batch(step)
                self._ready.put((long, rows.pinned() if torch.cuda.is_available() else rows))
        except BaseException as problem:
            self._ready.put(problem)

    def _batch(self, step: int) -> tuple[bool, TokenRows]:
        long = step % self.plan.long_every == self.plan.long_every - 1
        size = self.plan.long if long else self.plan.short
        return long, join([self._part(long, size) for _ in range(size.parts)])

    def _part(self, long: bool, size: BatchSize) -> TokenRows:
        if self._own is not None:
            return self._own.part(size)
        while True:
            try:
                return TokenRows(**{k: torch.from_numpy(v) for k, v in self._queues[long].get(timeout=60).items()})
            except queue.Empty:
                assert any(w.is_alive() for w in self._workers), "all processes that make data have died"

    def close(self) -> None:
        for worker in self._workers:
            worker.terminate()
