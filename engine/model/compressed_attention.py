"""Attention of DeepSeek-V4: a sliding window and compressed entries in one softmax (its sections 2.3.1 and 2.3.2).

One key head serves all query heads and is the value too, so the output is turned back by the query's own angles.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.batch import Batch
from engine.model.compressor import Compressor, rotate_tail
from engine.model.indexer import rotate_queries
from engine.model.linear import FusedLinear, Linear
from engine.model.norm import RmsNorm
from engine.model.ring import RingPlan, ring_plan, ring_slots
from engine.model.spec import CompressedAttention, Indexer
from engine.model.weights import Weights
from kernels.cache_rows import write_rows
from kernels.index_select import index_select
from kernels.linear import headwise_linear, linear
from kernels.norm import rms_norm
from kernels.sparse_attention import Rows, sparse_attention


class EntryIndexer:
    """Scores the visible compressed entries by keys from a small compressor of its own and keeps the `topk` best."""

    def __init__(
        self, spec: Indexer, attention: CompressedAttention, hidden: int, layer: int, weights: Weights
    ) -> None:
        self.spec, self.layer, self.ratio = spec, layer, attention.ratio
        self.compressor = Compressor(attention, "index", spec.width, hidden, layer, weights.scope("compressor"))
        self.head_weights = weights.vector("head_weights", spec.heads, hidden)
        self.head_scale = spec.heads**-0.5 * spec.width**-0.5

    def __call__(self, x: Tensor, queries: Tensor, batch: Batch) -> Tensor:
        """x [N, hidden], queries [N, heads * width] -> entry numbers int32 [N, K], ascending, -1 padded."""
        self.compressor(x, batch)
        spec = self.spec
        weights = linear(x.float(), self.head_weights) * self.head_scale
        visible = (batch.positions + 1) // self.ratio
        keys = batch.cache.pool(self.layer, "index")
        q, weights = rotate_queries(spec, queries, weights, batch.rotation(spec.rope), keys)
        chosen = index_select(q, weights, keys, batch.page_table, batch.sequence, visible, spec.topk)
        if batch.trace is not None:
            batch.trace.topk.setdefault(self.layer, []).append(chosen)
        return chosen


class CompressedAttentionBlock:
    """Window only (ratio 0), window plus selected entries (with an indexer), or window plus all entries."""

    def __init__(self, spec: CompressedAttention, hidden: int, layer: int, weights: Weights) -> None:
        self.spec, self.layer = spec, layer
        self.entry = FusedLinear(weights, hidden, q_down=spec.q_rank, kv=spec.width)
        queries = {"q_up": spec.heads * spec.width}
        if spec.indexer is not None:
            queries["indexer.query"] = spec.indexer.heads * spec.indexer.width
        self.queries = FusedLinear(weights, spec.q_rank, **queries)
        self.q_norm = RmsNorm(weights, "q_norm", spec.q_rank, spec.norm_eps)
        self.kv_norm = RmsNorm(weights, "kv_norm", spec.width, spec.norm_eps)
        self.sinks = weights.vector("sinks", spec.heads)
        ranks, group = spec.output_groups * spec.output_rank, spec.heads * spec.width // spec.output_groups
        down = weights.linear("output_down", ranks, group).unflatten(0, (spec.output_groups, -1))
        self.output_down = down.transpose(1, 2).contiguous()  # [groups, heads of a group * width, rank]
        self.output_up = Linear(weights, "output_up", hidden, ranks)
        self.compressor: Compressor | None = None
        self.indexer: EntryIndexer | None = None
        if spec.ratio:
            self.compressor = Compressor(spec, "entry", spec.width, hidden, layer, weights.scope("compressor"))
        if spec.indexer is not None:
            self.indexer = EntryIndexer(spec.indexer, spec, hidden, layer, weights.scope("indexer"))

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        """x [N, hidden] (normed) -> [N, hidden]; advances this layer's window, entries and compressors."""
        spec, angles = self.spec, batch.rotation(self.spec.rope)
        q_down, kv = self.entry(x)
        q_up, *index_query = self.queries(self.q_norm(q_down))
        q = rms_norm(q_up.unflatten(-1, (spec.heads, spec.width)), None, spec.norm_eps)
        q = rotate_tail(spec.rope, q, angles)
        sources = [self._window(kv, batch)]
        if self.compressor is not None:
            self.compressor(x, batch)
            per_page = batch.cache.entries_per_page(self.layer, "entry")
            if self.indexer is None:
                slots = _all_entries(batch, spec.ratio, per_page)
            else:
                slots = batch.flat_rows(self.indexer(x, index_query[0], batch), per_page)
            sources.append(batch.cache.rows(self.layer, "entry", slots))
        mixed = sparse_attention(q, None, tuple(sources), spec.width**-0.5, self.sinks)
        mixed = rotate_tail(spec.rope, mixed, angles.conj())
        groups = mixed.flatten(1).unflatten(-1, (spec.output_groups, -1))
        return self.output_up(headwise_linear(groups, self.output_down).flatten(1))

    def _window(self, kv: Tensor, batch: Batch) -> Rows:
        """Rows of the sliding window for each token; the ring then holds the newest tokens."""
        state = batch.cache.frontier(self.layer, "window").flatten(0, 1)
        if batch.single:  # the whole window of a single token lies in the ring
            assert self.spec.open_span is None or batch.is_image is None, "a step cuts a picture in two"
            slots = ring_slots(batch, self.spec.window_tokens)
            self._write(state, slots.own, kv, batch)
            return Rows(state, None, slots.held)
        ring = ring_plan(batch, self.spec.window_tokens)
        earlier = len(ring.earlier)
        rows = state.new_empty(earlier + len(kv), state.shape[1])
        torch.index_select(state, 0, ring.earlier, out=rows[:earlier])
        self._write(rows, torch.arange(earlier, len(rows), device=kv.device), kv, batch)
        state.index_copy_(0, ring.kept_slots, rows[earlier:][ring.kept])
        return Rows(rows, None, _window_slots(batch, self.spec, ring))

    def _write(self, pool: Tensor, slots: Tensor, kv: Tensor, batch: Batch) -> None:
        """Norm kv [N, width], rotate its last channels, write it to the listed rows."""
        spec, norm = self.spec, self.kv_norm
        write_rows(
            pool, slots, kv, norm.weight, None, norm.eps, batch.rotation(spec.rope), spec.width - spec.rope.width,
            spec.rope.style == "interleaved",
        )  # fmt: skip


def _all_entries(batch: Batch, ratio: int, entries_per_page: int) -> Tensor:
    """Flat pool rows of all entries each token may see, int64 [N, K], -1 padded."""
    key = ("entries", ratio)
    if key not in batch.plans:
        if batch.spans:
            most = max((span.before + span.count) // ratio for span in batch.spans)
            most = -(-most // 16) * 16  # once for all layers, where each would have to pad its list on a GPU
        else:
            most = batch.page_table.shape[1] * entries_per_page
        numbers = torch.arange(most, device=batch.positions.device).expand(len(batch.positions), -1)
        visible = numbers < ((batch.positions + 1) // ratio).unsqueeze(1)
        batch.plans[key] = batch.flat_rows(numbers.masked_fill(~visible, -1), entries_per_page)
    slots = batch.plans[key]
    assert isinstance(slots, Tensor)
    return slots


def _window_slots(batch: Batch, spec: CompressedAttention, ring: RingPlan) -> Tensor:
    """Working rows of each token's window, int64 [N, K]: the window behind it, and the whole open span around it."""
    key = ("window slots", spec.window_tokens, spec.open_span)
    if key not in batch.plans:
        position = torch.cat([torch.arange(s.before, s.before + s.count) for s in batch.spans])
        owner = torch.repeat_interleave(torch.arange(len(batch.spans)), torch.tensor([s.count for s in batch.spans]))
        first, last = position - spec.window_tokens + 1, position.clone()
        if spec.open_span is not None:
            _widen(batch.token_ids.cpu(), spec.open_span, position, owner, first, last)
        reach = torch.arange(int((last - first).max()) + 1)
        seen = first.unsqueeze(1) + reach
        slots = ring.working_rows(owner, seen).masked_fill(seen > last.unsqueeze(1), -1)
        batch.plans[key] = slots.to(batch.positions.device)
    slots = batch.plans[key]
    assert isinstance(slots, Tensor)
    return slots


def _widen(ids: Tensor, marks: tuple[int, int], position: Tensor, owner: Tensor, first: Tensor, last: Tensor) -> None:
    """Extend first and last [N] in place for tokens between an opening and a closing mark; a step holds both or none."""
    opening, closing = ((ids == mark).nonzero().flatten().tolist() for mark in marks)
    whole = len(opening) == len(closing) and all(owner[a] == owner[b] for a, b in zip(opening, closing, strict=True))
    assert whole, "a step cuts a picture in two"
    for a, b in zip(opening, closing, strict=True):
        first[a : b + 1] = first[a : b + 1].clamp(max=int(position[a]))
        last[a : b + 1] = position[b]
