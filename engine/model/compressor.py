"""Compressors of DeepSeek-V4: every `ratio` tokens become one cached entry. All arithmetic in float32.

State per conversation: the projected rows of the newest tokens, in a ring of one window, or two with overlap. Entry
numbers follow from the tokens' positions, so nothing else has to be remembered.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.batch import Batch
from engine.model.norm import RmsNorm
from engine.model.ring import RingPlan, ring_plan
from engine.model.rope import rotate, rotation
from engine.model.spec import CompressedAttention, Rope
from engine.model.weights import Weights
from kernels.cache_rows import write_rows
from kernels.compressor import compress_windows


def rotate_tail(rope: Rope, x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the last `rope.width` channels of x [N, heads, width] and keep the others."""
    return rotate(rope, x, angles, x.shape[-1] - rope.width)


class Windows(NamedTuple):
    """The windows that this step completes, of all conversations; M may be 0."""

    rows: Tensor  # int64 [M, J], working rows of their tokens, -1 before the first token
    entries: Tensor  # int64 [M], flat pool rows of their entries
    angles: Tensor  # complex64 [M, rope / 2], at the first token of each window


def completed_windows(batch: Batch, spec: CompressedAttention, ring: RingPlan, entries_per_page: int) -> Windows:
    """Found once per step for all layers of one kind."""
    key = ("windows", spec.ratio, spec.overlap, spec.rope)
    if key not in batch.plans:
        batch.plans[key] = _windows(batch, spec, ring, entries_per_page)
    windows = batch.plans[key]
    assert isinstance(windows, Windows)
    return windows


def _windows(batch: Batch, spec: CompressedAttention, ring: RingPlan, entries_per_page: int) -> Windows:
    ratio, device = spec.ratio, batch.positions.device
    done = [torch.arange(s.before // ratio, (s.before + s.count) // ratio) for s in batch.spans]
    number = torch.cat(done)
    span = torch.repeat_interleave(torch.arange(len(done)), torch.tensor([len(d) for d in done]))
    first = (number - 1 if spec.overlap else number) * ratio
    tokens = first.unsqueeze(1) + torch.arange(ring.size)
    pages = batch.page_table[span.to(device), (number // entries_per_page).to(device)]
    starts = (number * ratio).to(device)
    return Windows(
        ring.working_rows(span, tokens).to(device),
        pages * entries_per_page + (number % entries_per_page).to(device),
        rotation(spec.rope, starts.expand(3, -1)),
    )


class Compressor:
    """Writes the entries that this step completes into the pool `name`, and the newest tokens into its ring."""

    def __init__(
        self, spec: CompressedAttention, name: str, width: int, hidden: int, layer: int, weights: Weights
    ) -> None:
        self.spec, self.name, self.layer = spec, name, layer
        channels = width * (2 if spec.overlap else 1)
        self.project = torch.cat([weights.vector(part, channels, hidden) for part in ("value", "gate")])
        self.bias = weights.vector("bias", spec.ratio, channels)
        self.norm = RmsNorm(weights, "norm", width, spec.norm_eps)

    def __call__(self, x: Tensor, batch: Batch) -> None:
        """x [N, hidden] is the normed layer input."""
        spec = self.spec
        own = F.linear(x.float(), self.project).unflatten(-1, (2, -1))
        state = batch.cache.frontier(self.layer, f"{self.name}_frontier")
        ring = ring_plan(batch, state.shape[1])
        flat = state.flatten(0, 1)
        windows = completed_windows(batch, spec, ring, batch.cache.entries_per_page(self.layer, self.name))
        if len(windows.entries):
            rows = torch.cat([flat[ring.earlier], own])
            entries = compress_windows(rows, windows.rows, self.bias, spec.overlap)
            write_rows(
                batch.cache.pool(self.layer, self.name), windows.entries, entries, self.norm.weight, None, self.norm.eps,
                windows.angles, entries.shape[1] - spec.rope.width, spec.rope.style == "interleaved",
            )  # fmt: skip
        flat.index_copy_(0, ring.kept_slots, own if len(ring.kept) == len(own) else own[ring.kept])
