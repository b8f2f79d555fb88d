"""Rings: the last tokens of every conversation, position p in row p % size. Plans are made once per step, for all layers.

A step reads what it needs of the tokens before it, works on those rows followed by its own, and then writes its last
tokens over the oldest. Where every conversation brings one token, it is written first and all that is needed of the
conversation lies in the ring. Rings are frontiers of the cache, so copying one row saves its state exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.model.batch import Batch


class RingSlots(NamedTuple):
    """Flat ring rows of a single-token step, for rings of one size."""

    own: Tensor  # int64 [N], where each token is written
    held: Tensor  # int64 [N, size], the last `size` tokens up to this one, in order; -1 before the first


def ring_slots(batch: Batch, size: int) -> RingSlots:
    """The rows of this single-token step in rings of `size` tokens."""
    key = ("slots", size)
    if key not in batch.plans:
        own = batch.cache_rows * size + batch.positions % size
        tokens = batch.positions.unsqueeze(1) - torch.arange(size - 1, -1, -1, device=own.device)
        held = (batch.cache_rows * size).unsqueeze(1) + tokens % size
        batch.plans[key] = RingSlots(own, held.masked_fill_(tokens < 0, -1))
    slots = batch.plans[key]
    assert isinstance(slots, RingSlots)
    return slots


@dataclass(frozen=True)
class RingPlan:
    """How other steps meet rings of one size. "Working rows" are `earlier` ring rows followed by the batch's own rows."""

    size: int
    earlier: Tensor  # int64 [P], flat ring rows of the up to size - 1 tokens before each chunk
    kept: Tensor  # int64 [K], batch rows that stay in the ring
    kept_slots: Tensor  # int64 [K], the flat ring rows they are written to
    _spans: Tensor  # int64 [S, 4] on the CPU: first batch row, tokens before, first working row, its position

    def working_rows(self, span: Tensor, positions: Tensor) -> Tensor:
        """Working rows of positions int64 [M, J] in the conversations span int64 [M], both on the CPU; -1 below 0."""
        first, before, base, oldest = self._spans[span].unsqueeze(-1).unbind(1)
        own = len(self.earlier) + first + positions - before
        found = torch.where(positions >= before, own, base + positions - oldest)
        return found.masked_fill(positions < 0, -1)


def ring_plan(batch: Batch, size: int) -> RingPlan:
    """The plan of this step for rings of `size` tokens."""
    key = ("ring", size)
    if key not in batch.plans:
        batch.plans[key] = _plan(batch, size)
    plan = batch.plans[key]
    assert isinstance(plan, RingPlan)
    return plan


def _plan(batch: Batch, size: int) -> RingPlan:
    earlier, kept, slots, spans, base = [], [], [], [], 0
    for span in batch.spans:
        oldest = max(0, span.before - size + 1)
        earlier.append(span.cache_row * size + torch.arange(oldest, span.before) % size)
        stay = torch.arange(max(0, span.count - size), span.count)
        kept.append(span.first + stay)
        slots.append(span.cache_row * size + (span.before + stay) % size)
        spans.append((span.first, span.before, base, oldest))
        base += span.before - oldest
    device = batch.positions.device
    return RingPlan(
        size,
        torch.cat(earlier).to(device),
        torch.cat(kept).to(device),
        torch.cat(slots).to(device),
        torch.tensor(spans, dtype=torch.int64),
    )
