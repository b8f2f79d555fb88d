"""One step's worth of tokens from several conversations, flat and without padding. N tokens, S conversations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.cache.cache import CachedSequence, KvCache
from engine.model.rope import rotation
from engine.model.spec import Rope

_LISTED_PAGES = (
    1024  # up to here it is cheaper to list all rows of a conversation once than to work out some in each layer
)


@dataclass(frozen=True)
class Chunk:
    """Consecutive new tokens of one conversation. The cache must have room reserved for them.

    token_ids int64 [n]; rope_positions int64 [3, n]; is_image bool [n] or None; embeddings: (rows of this chunk
    int64 [m], values [m, H]) that replace token embeddings; want_logits: "none", "last" or "all".
    """

    sequence: CachedSequence
    token_ids: Tensor
    rope_positions: Tensor
    is_image: Tensor | None = None
    embeddings: tuple[Tensor, Tensor] | None = None
    want_logits: str = "last"


@dataclass(frozen=True)
class Span:
    """Where a conversation's tokens lie in the batch: rows first .. first + count; `before` tokens are already cached."""

    first: int
    count: int
    before: int
    cache_row: int

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.count)


class Trace:
    """Records what layers decide, for comparison with a reference. Used by scoring and tests only."""

    def __init__(self) -> None:
        self.topk: dict[int, list[Tensor]] = {}
        self.router: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self.layer_out: dict[int, list[Tensor]] = {}
        self.final_hidden: list[Tensor] = []


@dataclass
class Batch:
    """Everything the layers need to know about this step.

    In a single-token step every conversation brings one token: S = N, token n is conversation n's. Layers then work out
    all they need on the device, in shapes that follow from S and the page table alone, so that one step is like the next.
    """

    token_ids: Tensor  # int64 [N]
    positions: Tensor  # int64 [N], index of the token in its conversation
    rope_positions: Tensor  # int64 [3, N]
    sequence: Tensor  # int64 [N], row of the page table
    page_table: Tensor  # int64 [S, pages]
    cache_rows: Tensor  # int64 [S], where each conversation's frontiers are
    token_slots: Tensor  # int64 [N], flat pool row of each token in pools with one entry per token
    logit_rows: Tensor  # int64 [L], rows whose logits are wanted
    cache: KvCache
    single: bool
    spans: Sequence[Span] = ()  # none when only the device knows them, in a single-token step that is captured
    embeddings: Sequence[tuple[Tensor, Tensor]] = ()  # (rows int64 [m], values [m, H])
    is_image: Tensor | None = None  # bool [N]
    trace: Trace | None = None
    selected: dict[int, Tensor] = field(default_factory=dict)  # layer -> flat pool rows int64 [N, K], -1 padded
    plans: dict[Hashable, object] = field(default_factory=dict)  # what layers of one kind work out once per step
    _rotations: dict[Rope, Tensor] = field(default_factory=dict)

    def rotation(self, rope: Rope) -> Tensor:
        """cos + i sin of this step's tokens, complex64 [N, width / 2]; computed once per kind of rope."""
        found = self._rotations.get(rope)
        if found is None:
            found = self._rotations[rope] = rotation(rope, self.rope_positions)
        return found

    def flat_rows(self, entries: Tensor, entries_per_page: int) -> Tensor:
        """Entry numbers int [N, K] (-1 padded) of each token's own conversation to flat pool rows, -1 kept."""
        known = entries.clamp(min=0)
        if self.page_table.shape[0] == 1 and self.page_table.shape[1] <= _LISTED_PAGES:
            rows = self._rows_of_the_only_conversation(entries_per_page)
            return rows.index_select(0, known.flatten()).view(known.shape).masked_fill_(entries < 0, -1)
        known = known.long()
        page, place = known // entries_per_page, known % entries_per_page
        if self.page_table.shape[0] == 1:
            pages = self.page_table[0].index_select(0, page.flatten()).view(page.shape)
        elif self.single:
            pages = self.page_table.gather(1, page)
        else:
            pages = self.page_table[self.sequence.unsqueeze(1), page]
        return (pages * entries_per_page).add_(place).masked_fill_(entries < 0, -1)

    def _rows_of_the_only_conversation(self, entries_per_page: int) -> Tensor:
        """Flat pool rows int64 [pages * entries per page], worked out once for all layers."""
        key = ("rows", entries_per_page)
        if key not in self.plans:
            place = torch.arange(entries_per_page, device=self.page_table.device)
            self.plans[key] = (self.page_table[0].unsqueeze(1) * entries_per_page + place).flatten()
        rows = self.plans[key]
        assert isinstance(rows, Tensor)
        return rows

    def completes(self, ratio: int) -> bool:
        """Whether a window of `ratio` tokens ends in this step; True if only the device knows."""
        return not self.spans or any((s.before + s.count) // ratio > s.before // ratio for s in self.spans)


def build_batch(chunks: Sequence[Chunk], cache: KvCache, trace: Trace | None = None) -> Batch:
    """Lay the chunks end to end. Each conversation appears once."""
    spans, first = [], 0
    for chunk in chunks:
        count, before = len(chunk.token_ids), chunk.sequence.length
        assert before + count <= len(chunk.sequence.pages) * cache.layout.page_tokens, "no room reserved"
        spans.append(Span(first, count, before, chunk.sequence.row))
        first += count
    batch = _single_tokens(chunks, cache) if first == len(chunks) else _several_tokens(chunks, spans, cache)
    batch.spans, batch.trace = spans, trace
    batch.embeddings = [
        ((chunk.embeddings[0] + span.first).to(cache.device), chunk.embeddings[1].to(cache.device))
        for chunk, span in zip(chunks, spans, strict=True)
        if chunk.embeddings is not None
    ]
    if any(chunk.is_image is not None for chunk in chunks):
        parts = [
            torch.zeros(span.count, dtype=torch.bool) if chunk.is_image is None else chunk.is_image
            for chunk, span in zip(chunks, spans, strict=True)
        ]
        batch.is_image = torch.cat(parts).to(cache.device)
    return batch


def _single_tokens(chunks: Sequence[Chunk], cache: KvCache) -> Batch:
    width = max(len(chunk.sequence.pages) for chunk in chunks)
    numbers = token_numbers(chunks, cache.layout.page_tokens)
    for chunk in chunks:
        numbers += chunk.sequence.pages
        numbers += [0] * (width - len(chunk.sequence.pages))
    batch = single_token_batch(torch.tensor(numbers).to(cache.device), len(chunks), cache)
    if any(chunk.want_logits == "none" for chunk in chunks):
        wanted = [row for row, chunk in enumerate(chunks) if chunk.want_logits != "none"]
        batch.logit_rows = torch.tensor(wanted, dtype=torch.int64).to(cache.device)
    return batch


def padded_rows(count: int) -> int:
    """Length of each list in `token_numbers`: whole units of 128 bytes, as kernels are compiled for aligned addresses."""
    return -(-count // 16) * 16


def token_numbers(chunks: Sequence[Chunk], page_tokens: int) -> list[int]:
    """What a single-token step must be told, page table aside: eight lists, each padded to `padded_rows` of the batch."""
    ids, positions, slots = [], [], []
    for chunk in chunks:
        place, pages = chunk.sequence.length, chunk.sequence.pages
        ids.append(int(chunk.token_ids))
        positions.append(place)
        slots.append(pages[place // page_tokens] * page_tokens + place % page_tokens)
    turns = [chunk.rope_positions.tolist() for chunk in chunks]
    rope = ([turn[axis][0] for turn in turns] for axis in range(3))
    rows = [chunk.sequence.row for chunk in chunks]
    unused = [0] * (padded_rows(len(chunks)) - len(chunks))
    numbers: list[int] = []
    for part in (ids, positions, slots, rows, range(len(chunks)), *rope):
        numbers += part
        numbers += unused
    return numbers


def single_token_batch(numbers: Tensor, count: int, cache: KvCache) -> Batch:
    """The step of `count` conversations that numbers int64 on the device describes: `token_numbers`, then the page table.

    All parts are views of `numbers`, so that the step can be repeated with others written over them.
    """
    end = 8 * padded_rows(count)
    lists = numbers[:end].view(8, -1)[:, :count]
    ids, positions, slots, rows, sequence = lists[:5].unbind()
    return Batch(
        token_ids=ids,
        positions=positions,
        rope_positions=lists[5:],
        sequence=sequence,
        page_table=numbers[end:].view(count, -1),
        cache_rows=rows,
        token_slots=slots,
        logit_rows=sequence,
        cache=cache,
        single=True,
    )


def _several_tokens(chunks: Sequence[Chunk], spans: Sequence[Span], cache: KvCache) -> Batch:
    device, page = cache.device, cache.layout.page_tokens
    width = max(len(c.sequence.pages) for c in chunks)
    table = torch.tensor([c.sequence.pages + [0] * (width - len(c.sequence.pages)) for c in chunks])
    logit_rows = [
        torch.arange(s.first if c.want_logits == "all" else s.first + s.count - 1, s.first + s.count)
        for c, s in zip(chunks, spans, strict=True)
        if c.want_logits != "none"
    ]
    position = torch.cat([torch.arange(s.before, s.before + s.count) for s in spans])
    sequence = torch.cat([torch.full((s.count,), row) for row, s in enumerate(spans)])
    slots = table[sequence, position // page] * page + position % page
    return Batch(
        token_ids=torch.cat([c.token_ids for c in chunks]).to(device),
        positions=position.to(device),
        rope_positions=torch.cat([c.rope_positions for c in chunks], dim=1).to(device),
        sequence=sequence.to(device),
        page_table=table.to(device),
        cache_rows=torch.tensor([s.cache_row for s in spans]).to(device),
        token_slots=slots.to(device),
        logit_rows=(torch.cat(logit_rows) if logit_rows else torch.empty(0, dtype=torch.int64)).to(device),
        cache=cache,
        single=False,
    )
