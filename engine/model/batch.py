"""One step's worth of tokens from several conversations, flat and without padding. N tokens, S conversations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.cache.cache import CachedSequence, KvCache
from engine.model.rope import rotation
from engine.model.spec import Rope


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
    """Everything the layers need to know about this step."""

    token_ids: Tensor  # int64 [N]
    positions: Tensor  # int64 [N], index of the token in its conversation
    rope_positions: Tensor  # int64 [3, N]
    sequence: Tensor  # int64 [N], row of the page table
    page_table: Tensor  # int64 [S, pages]
    spans: list[Span]
    token_slots: Tensor  # int64 [N], flat pool row of each token in pools with one entry per token
    logit_rows: Tensor  # int64 [L], rows whose logits are wanted
    embeddings: list[tuple[Tensor, Tensor]]  # (rows int64 [m], values [m, H])
    is_image: Tensor | None  # bool [N]
    cache: KvCache
    trace: Trace | None = None
    selected: dict[int, Tensor] = field(default_factory=dict)  # layer -> flat pool rows int64 [N, K], -1 padded
    plans: dict[Hashable, object] = field(default_factory=dict)  # what layers of one kind work out once per step
    _rotations: dict[Rope, Tensor] = field(default_factory=dict)

    def rotation(self, rope: Rope) -> Tensor:
        """cos + i sin of this step's tokens, complex64 [N, width / 2]; computed once per kind of rope."""
        if rope not in self._rotations:
            self._rotations[rope] = rotation(rope, self.rope_positions)
        return self._rotations[rope]

    def flat_rows(self, entries: Tensor, entries_per_page: int) -> Tensor:
        """Entry numbers int [N, K] (-1 padded) of each token's own conversation to flat pool rows, -1 kept."""
        known = entries.clamp(min=0).long()
        page, place = known // entries_per_page, known % entries_per_page
        if len(self.spans) == 1:
            pages = self.page_table[0].index_select(0, page.flatten()).view(page.shape)
        else:
            pages = self.page_table[self.sequence.unsqueeze(1), page]
        return (pages * entries_per_page).add_(place).masked_fill_(entries < 0, -1)


def build_batch(chunks: Sequence[Chunk], cache: KvCache, trace: Trace | None = None) -> Batch:
    """Lay the chunks end to end. Each conversation appears once."""
    device, page = cache.device, cache.layout.page_tokens
    counts = [c.token_ids.shape[0] for c in chunks]
    width = max(len(c.sequence.pages) for c in chunks)
    table = torch.tensor([c.sequence.pages + [0] * (width - len(c.sequence.pages)) for c in chunks])
    spans, positions, logit_rows, embeddings, first = [], [], [], [], 0
    for chunk, count in zip(chunks, counts, strict=True):
        before = chunk.sequence.length
        assert before + count <= len(chunk.sequence.pages) * page, "no room reserved"
        spans.append(Span(first, count, before, chunk.sequence.row))
        positions.append(torch.arange(before, before + count))
        if chunk.want_logits != "none":
            logit_rows.append(torch.arange(first if chunk.want_logits == "all" else first + count - 1, first + count))
        if chunk.embeddings is not None:
            rows, values = chunk.embeddings
            embeddings.append(((rows + first).to(device), values.to(device)))
        first += count
    position = torch.cat(positions)
    sequence = torch.cat([torch.full((count,), row) for row, count in enumerate(counts)])
    slots = table[sequence, position // page] * page + position % page
    is_image = None
    if any(c.is_image is not None for c in chunks):
        parts = [
            torch.zeros(n, dtype=torch.bool) if c.is_image is None else c.is_image
            for c, n in zip(chunks, counts, strict=True)
        ]
        is_image = torch.cat(parts).to(device)
    return Batch(
        token_ids=torch.cat([c.token_ids for c in chunks]).to(device),
        positions=position.to(device),
        rope_positions=torch.cat([c.rope_positions for c in chunks], dim=1).to(device),
        sequence=sequence.to(device),
        page_table=table.to(device),
        spans=spans,
        token_slots=slots.to(device),
        logit_rows=(torch.cat(logit_rows) if logit_rows else torch.empty(0, dtype=torch.int64)).to(device),
        embeddings=embeddings,
        is_image=is_image,
        cache=cache,
        trace=trace,
    )
