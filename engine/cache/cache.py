"""The KV cache of all live conversations: paged pools, page tables, and per-conversation frontiers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.cache.layout import CacheLayout, Frontier, Pool
from engine.cache.pages import PageAllocator
from kernels.cache_rows import read_index_rows, write_index_rows
from kernels.sparse_attention import Rows

FRONTIER = "frontier."  # begins the names of exported frontiers; other exported tensors are rows of pools
STAGING_BYTES = 16 << 20  # of one of the two pinned buffers for uploads


@dataclass(eq=False)
class CachedSequence:
    """One conversation's place in the cache. `length` tokens are valid; `row` holds its frontiers."""

    row: int
    pages: list[int] = field(default_factory=list)
    length: int = 0


@dataclass(frozen=True)
class Snapshot:
    """Copy of a conversation's frontiers at a token count; cutting back needs one when the layout has frontiers."""

    length: int
    frontiers: tuple[Tensor, ...]


class KvCache:
    """Pools [pages, entries per page, width] and frontiers [conversations, ...] for one model.

    Memory is reserved when the cache is made; the operating system commits it as pages are first written.
    """

    def __init__(self, layout: CacheLayout, num_pages: int, num_rows: int, device: torch.device) -> None:
        self.layout, self.device = layout, device
        self.allocator = PageAllocator(num_pages)
        self._free_rows = list(range(num_rows - 1, -1, -1))
        self._live: set[CachedSequence] = set()
        self._specs = {(pool.layer, pool.name): pool for pool in layout.pools}
        self._pools = {key: self._empty(pool, num_pages) for key, pool in self._specs.items()}
        self._frontiers = {
            (f.layer, f.name): torch.zeros(num_rows, *f.shape, dtype=f.dtype, device=device) for f in layout.frontiers
        }

    @property
    def capacity_tokens(self) -> int:
        return self.allocator.num_pages * self.layout.page_tokens

    def _empty(self, pool: Pool, num_pages: int) -> Tensor:
        entries, (width, dtype) = self.layout.page_tokens // pool.tokens_per_entry, pool.row_shape
        if pool.packing == "index":  # a page's codes lie before its scales
            return torch.zeros(num_pages, entries * width, dtype=dtype, device=self.device)
        return torch.zeros(num_pages, entries, width, dtype=dtype, device=self.device)

    def pool(self, layer: int, name: str) -> Tensor:
        """One pool: [pages, entries per page, width], or packed index keys uint8 [pages, bytes]."""
        return self._pools[layer, name]

    def entries_per_page(self, layer: int, name: str) -> int:
        """Entries of a pool in one page."""
        return self.layout.page_tokens // self._specs[layer, name].tokens_per_entry

    def latent_pools(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """The pools of latents and of rotated keys; None when packed rows hold both."""
        return self._pools[layer, "latent"], self._pools.get((layer, "rope"))

    def rows(self, layer: int, name: str, slots: Tensor) -> Rows:
        """A pool as attention reads it, with the listed flat rows int64 [N, K]."""
        rope = self._pools.get((layer, "rope")) if name == "latent" else None
        return Rows(self._pools[layer, name].flatten(0, 1), None if rope is None else rope.flatten(0, 1), slots)

    def frontier(self, layer: int, name: str) -> Tensor:
        """State of one kind for all conversations, [rows, ...]."""
        return self._frontiers[layer, name]

    def open(self) -> CachedSequence | None:
        """A place for a new conversation with zeroed frontiers, or None when all rows are taken."""
        if not self._free_rows:
            return None
        sequence = CachedSequence(self._free_rows.pop())
        self._live.add(sequence)
        self._clear_frontiers(sequence)
        return sequence

    def reserve(self, sequence: CachedSequence, tokens: int) -> bool:
        """Make room for `tokens` tokens in all; False (and nothing changed) when the pool has too few free pages."""
        missing = -(-tokens // self.layout.page_tokens) - len(sequence.pages)
        if missing > 0:
            pages = self.allocator.take(missing)
            if pages is None:
                return False
            sequence.pages.extend(pages)
        return True

    def truncate(self, sequence: CachedSequence, tokens: int, snapshot: Snapshot | None = None) -> None:
        """Forget everything behind `tokens`. With frontiers, `snapshot` must have been taken exactly there (or tokens is 0)."""
        assert tokens <= sequence.length
        if tokens < sequence.length and self._frontiers:
            if snapshot is None:
                assert tokens == 0, "frontiers cannot be cut without a snapshot"
                self._clear_frontiers(sequence)
            else:
                assert snapshot.length == tokens
                for tensor, saved in zip(self._frontiers.values(), snapshot.frontiers, strict=True):
                    tensor[sequence.row].copy_(saved)
        keep = -(-tokens // self.layout.page_tokens)
        self.allocator.give_back(sequence.pages[keep:])
        del sequence.pages[keep:]
        sequence.length = tokens

    def snapshot(self, sequence: CachedSequence) -> Snapshot:
        """Copy the frontiers as they are now (empty for models without them)."""
        return Snapshot(sequence.length, tuple(t[sequence.row].clone() for t in self._frontiers.values()))

    def export_rows(self, sequence: CachedSequence, start: int, stop: int) -> dict[str, Tensor]:
        """Copies on the CPU of everything kept for tokens start..stop, in logical order, plus the frontiers as they are now.

        Pools that stand for several tokens per entry give the entries completed in this range. `stop` is where the
        frontiers are: of a ring only the rows that are still needed there are copied.
        """
        tensors, slots = {}, self._slots(sequence, start, stop)
        for pool in self.layout.pools:
            source, chosen = self._pools[pool.layer, pool.name], slots[pool.tokens_per_entry]
            packed = pool.packing == "index"
            rows = (
                read_index_rows(source, chosen, pool.width) if packed else source.flatten(0, 1).index_select(0, chosen)
            )
            tensors[f"{pool.layer}.{pool.name}"] = rows.cpu()
        for frontier in self.layout.frontiers:
            state = self._frontiers[frontier.layer, frontier.name][sequence.row, : self._needed(frontier, stop)]
            tensors[f"{FRONTIER}{frontier.layer}.{frontier.name}"] = state.to("cpu", copy=True)
        return tensors

    def import_rows(
        self, sequence: CachedSequence, stop: int, exports: Sequence[tuple[int, Mapping[str, Tensor]]]
    ) -> None:
        """Write tokens up to `stop` behind those that are there, from exports given with the tokens they began at.

        The exports follow each other and cover what is written; room must be reserved. Frontiers are taken over from the
        last one, so `stop` must be where they were exported. Sets the length to `stop`.
        """
        start, staging = sequence.length, _Staging(self.device)
        slots = self._slots(sequence, start, stop)
        for pool in self.layout.pools:
            name, first, last = (
                f"{pool.layer}.{pool.name}",
                start // pool.tokens_per_entry,
                stop // pool.tokens_per_entry,
            )
            pieces = []
            for begin, tensors in exports:
                offset = begin // pool.tokens_per_entry
                pieces.append(tensors[name][max(first - offset, 0) : max(last - offset, 0)])
            target, done = self._pools[pool.layer, pool.name], 0
            for rows in staging.upload(pieces):
                chosen = slots[pool.tokens_per_entry][done : done + len(rows)]
                if pool.packing == "index":
                    write_index_rows(target, chosen, rows)
                else:
                    _words(target.flatten(0, 1)).index_copy_(0, chosen, _words(rows))
                done += len(rows)
            assert done == last - first, "the exports leave out tokens"
        for (layer, name), tensor in self._frontiers.items():
            state = exports[-1][1][f"{FRONTIER}{layer}.{name}"]
            tensor[sequence.row, : len(state)].copy_(state)
        staging.finish()
        sequence.length = stop

    def accepts(self, start: int, stop: int, tensors: Mapping[str, Tensor], ends: bool = True) -> bool:
        """Whether an export of tokens start..stop has exactly the parts, shapes and types of this cache.

        ends: with frontiers, as the last export of several has them.
        """
        expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            f"{p.layer}.{p.name}": (
                (stop // p.tokens_per_entry - start // p.tokens_per_entry, p.row_shape[0]),
                p.row_shape[1],
            )
            for p in self.layout.pools
        }
        if ends:
            expected |= {
                f"{FRONTIER}{f.layer}.{f.name}": ((self._needed(f, stop), *f.shape[1:]), f.dtype)
                for f in self.layout.frontiers
            }
        return {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()} == expected

    def _needed(self, frontier: Frontier, tokens: int) -> int:
        """How many rows of a frontier matter behind so many tokens.

        The ring of a pool's single window holds the window that is open; where one ends, nothing of it is needed any more.
        """
        pool = self._specs.get((frontier.layer, frontier.name.removesuffix("_frontier")))
        single = pool is not None and pool.tokens_per_entry == frontier.shape[0]
        return tokens % frontier.shape[0] if single else frontier.shape[0]

    def _slots(self, sequence: CachedSequence, start: int, stop: int) -> dict[int, Tensor]:
        """Flat pool rows int64 of the entries of tokens start..stop, by how many tokens an entry stands for."""
        pages, slots = torch.tensor(sequence.pages, dtype=torch.int64), {}
        for tokens in {pool.tokens_per_entry for pool in self.layout.pools}:
            per_page, entries = self.layout.page_tokens // tokens, torch.arange(start // tokens, stop // tokens)
            slots[tokens] = (pages[entries // per_page] * per_page + entries % per_page).to(self.device)
        return slots

    def close(self, sequence: CachedSequence) -> None:
        """Free everything the conversation holds."""
        self.truncate(sequence, 0)
        self._live.remove(sequence)
        self._free_rows.append(sequence.row)

    def _clear_frontiers(self, sequence: CachedSequence) -> None:
        for tensor in self._frontiers.values():
            tensor[sequence.row].zero_()

    def check_integrity(self) -> None:
        """Re-add all pages and rows; raises AssertionError if one is lost or shared."""
        self.allocator.check_integrity([s.pages for s in self._live])
        rows = [s.row for s in self._live]
        num_rows = len(rows) + len(self._free_rows)
        assert sorted(itertools.chain(rows, self._free_rows)) == list(range(num_rows)), "a row is lost or shared"


def _words(rows: Tensor) -> Tensor:
    """The same rows in words of four bytes where they can be: copied by the element, single bytes take four times as long."""
    return rows.view(torch.int32) if rows.shape[-1] * rows.itemsize % 4 == 0 else rows


class _Staging:
    """Uploads to a GPU through two pinned buffers, so that copying one batch in overlaps sending the one before."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: list[Tensor | None] = [None, None]
        self._sent: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def upload(self, pieces: Sequence[Tensor]) -> Iterator[Tensor]:
        """The rows of all pieces on the device, in order; on the CPU that is where they are."""
        if self._device.type != "cuda":
            yield from pieces
            return
        width = pieces[0].shape[1:].numel() * pieces[0].itemsize
        batch_rows, count = max(1, STAGING_BYTES // width), 0
        batch: list[Tensor] = []
        for piece in pieces:
            for part in piece.split(batch_rows):
                if count + len(part) > batch_rows:
                    yield self._send(batch)
                    batch, count = [], 0
                batch.append(part)
                count += len(part)
        yield self._send(batch)

    def _send(self, parts: list[Tensor]) -> Tensor:
        self._turn = turn = 1 - self._turn
        event, buffer = self._sent[turn], self._buffers[turn]
        if event is not None:
            event.synchronize()
        if buffer is None:
            buffer = self._buffers[turn] = torch.empty(STAGING_BYTES, dtype=torch.uint8, pin_memory=True)
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        pinned = buffer[: sum(part.nbytes for part in parts)].view(parts[0].dtype).view(shape)
        for target, part in zip(pinned.split([len(part) for part in parts]), parts, strict=True):
            target.copy_(part)
        sent = pinned.to(self._device, non_blocking=True)
        event = self._sent[turn] = torch.cuda.Event()
        event.record()
        return sent

    def finish(self) -> None:
        """Wait until nothing reads the buffers any more."""
        for event in self._sent:
            if event is not None:
                event.synchronize()
