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
from engine.model.ring import ring_plan, ring_slots
from engine.model.rope import rotate, rotation
from engine.model.spec import CompressedAttention, Rope
from engine.model.weights import Weights
from kernels.cache_rows import write_rows
from kernels.compressor import compress_windows


def rotate_tail(rope: Rope, x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the last `rope.width` channels of x [N, heads, width] and keep the others."""
    return rotate(rope, x, angles, x.shape[-1] - rope.width)


class Windows(NamedTuple):
    """The windows that this step completes, of all conversations; M may be 0.

    In a single-token step M = N: where no window ends at a token, its entry is -1 and the others mean nothing.
    """

    rows: Tensor  # int64 [M, J], rows of their tokens, -1 before the first: working rows, or rows of the ring
    entries: Tensor  # int64 [M], flat pool rows of their entries
    angles: Tensor  # complex64 [M, rope / 2], at the first token of each window


def completed_windows(batch: Batch, spec: CompressedAttention, ring_tokens: int, entries_per_page: int) -> Windows:
    """Found once per step for all layers of one kind."""
    key = ("windows", spec.ratio, spec.overlap, spec.rope)
    if key not in batch.plans:
        find = _last_windows if batch.single else _windows
        batch.plans[key] = find(batch, spec, ring_tokens, entries_per_page)
    windows = batch.plans[key]
    assert isinstance(windows, Windows)
    return windows


def _last_windows(batch: Batch, spec: CompressedAttention, ring_tokens: int, entries_per_page: int) -> Windows:
    """Of a single-token step, by arithmetic on the device."""
    tokens = batch.positions + 1
    number = (tokens // spec.ratio - 1).clamp_(min=0)
    entries = batch.flat_rows(number.unsqueeze(1), entries_per_page).squeeze(1)
    return Windows(
        ring_slots(batch, ring_tokens).held,
        entries.masked_fill_(tokens % spec.ratio != 0, -1),
        rotation(spec.rope, (number * spec.ratio).expand(3, -1)),
    )


def _windows(batch: Batch, spec: CompressedAttention, ring_tokens: int, entries_per_page: int) -> Windows:
    ratio, device = spec.ratio, batch.positions.device
    done = [torch.arange(s.before // ratio, (s.before + s.count) // ratio) for s in batch.spans]
    number = torch.cat(done)
    span = torch.repeat_interleave(torch.arange(len(done)), torch.tensor([len(d) for d in done]))
    first = (number - 1 if spec.overlap else number) * ratio
    tokens = first.unsqueeze(1) + torch.arange(ring_tokens)
    pages = batch.page_table[span.to(device), (number // entries_per_page).to(device)]
    starts = (number * ratio).to(device)
    return Windows(
        ring_plan(batch, ring_tokens).working_rows(span, tokens).to(device),
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
        own = F.linear(x.float(), self.project).unflatten(-1, (2, -1))
        state = batch.cache.frontier(self.layer, f"{self.name}_frontier")
        size, flat = state.shape[1], state.flatten(0, 1)
        if batch.single:
            flat.index_copy_(0, ring_slots(batch, size).own, own)
            self._compress(flat, size, batch)
        else:
            ring = ring_plan(batch, size)
            self._compress(torch.cat([flat[ring.earlier], own]), size, batch)
            flat.index_copy_(0, ring.kept_slots, own if len(ring.kept) == len(own) else own[ring.kept])

    def _compress(self, rows: Tensor, size: int, batch: Batch) -> None:
        """Write the entries of completed windows, whose tokens are among `rows`."""
        spec, norm = self.spec, self.norm
        if not batch.completes(spec.ratio):
            return
        windows = completed_windows(batch, spec, size, batch.cache.entries_per_page(self.layer, self.name))
        entries = compress_windows(rows, windows.rows, self.bias, spec.overlap)
        write_rows(
            batch.cache.pool(self.layer, self.name), windows.entries, entries, norm.weight, None, norm.eps,
            windows.angles, entries.shape[1] - spec.rope.width, spec.rope.style == "interleaved",
        )  # fmt: skip
