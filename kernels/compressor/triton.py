"""Compression of windows on a GPU, one block of channels of one window per program. J tokens per window, D channels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import require_gpu


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _compress_kernel(
    rows_ptr,  # float32 [R, 2, C]
    slots_ptr,  # int64 [M, J]
    bias_ptr,  # float32 [RATIO, C]
    out_ptr,  # float32 [M, D]
    J: tl.constexpr,
    PADDED: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
    RATIO: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With overlap (J = 2 RATIO) the later half of the tokens uses channels D .. 2D."""
    m = tl.program_id(0).to(tl.int64)
    j, d = tl.arange(0, PADDED), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + m * J + j, mask=j < J, other=-1)
    inside = (slot >= 0)[:, None] & (d < D)[None, :]
    channel = tl.where(j >= RATIO, D, 0)[:, None] + d[None, :]
    at = tl.maximum(slot, 0)[:, None] * (2 * C) + channel
    bias = tl.load(bias_ptr + (j % RATIO)[:, None] * C + channel, mask=inside, other=0.0)
    gate = tl.where(inside, tl.load(rows_ptr + at + C, mask=inside, other=0.0) + bias, float("-inf"))
    weight = tl.exp(gate - tl.max(gate, 0)[None, :])
    value = tl.load(rows_ptr + at, mask=inside, other=0.0)
    entry = tl.sum(weight * value, 0) / tl.sum(weight, 0)
    tl.store(out_ptr + m * D + d, entry, mask=d < D)


def compress_windows(rows: Tensor, slots: Tensor, bias: Tensor, overlap: bool) -> Tensor:
    """See the reference."""
    windows, tokens = slots.shape
    channels = rows.shape[2]
    width = channels // 2 if overlap else channels
    out = torch.empty(windows, width, dtype=torch.float32, device=rows.device)
    if windows:
        padded = triton.next_power_of_2(tokens)
        block = max(16, min(128, triton.next_power_of_2(width), 8192 // padded))
        _compress_kernel[(windows, triton.cdiv(width, block))](
            rows.contiguous(), slots.contiguous(), bias.contiguous(), out, J=tokens, PADDED=padded, C=channels, D=width,
            RATIO=bias.shape[0], BLOCK=block, num_warps=4,
        )  # fmt: skip
    return out
