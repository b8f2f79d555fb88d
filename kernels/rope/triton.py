"""Rotation of channel pairs on a GPU, a token's heads together. N tokens, D rotated channels."""

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
def _rotate_kernel(
    x_ptr,  # [N, heads, D], strides given
    angle_ptr,  # float32 [N, D / 2, 2], cosine and sine
    out_ptr,  # [N, heads, D]
    heads,
    row_stride,
    head_stride,
    sign,
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """Pairs are (2i, 2i + 1) when INTERLEAVED, else (i, i + D / 2)."""
    n = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, PADDED)
    inside = (head < heads)[:, None] & (pair < HALF)[None, :]
    if INTERLEAVED:
        first, second = 2 * pair, 2 * pair + 1
    else:
        first, second = pair, pair + HALF
    cos = tl.load(angle_ptr + (n * HALF + pair) * 2, mask=pair < HALF, other=0.0)[None, :]
    sin = tl.load(angle_ptr + (n * HALF + pair) * 2 + 1, mask=pair < HALF, other=0.0)[None, :] * sign
    x = x_ptr + n * row_stride + head[:, None] * head_stride
    a = tl.load(x + first[None, :], mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + second[None, :], mask=inside, other=0.0).to(tl.float32)
    out = out_ptr + (n * heads + head[:, None]) * (2 * HALF)
    tl.store(out + first[None, :], (a * cos - b * sin).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(out + second[None, :], (b * cos + a * sin).to(out_ptr.dtype.element_ty), mask=inside)


def _rotate(x: Tensor, rotation: Tensor, interleaved: bool) -> Tensor:
    tokens, heads, width = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    sign = -1.0 if rotation.is_conj() else 1.0
    angles = torch.view_as_real(rotation.conj() if rotation.is_conj() else rotation).contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _rotate_kernel[(tokens, triton.cdiv(heads, 16))](
            x, angles, out, heads, x.stride(0), x.stride(1), sign, HALF=width // 2,
            PADDED=triton.next_power_of_2(width // 2), HEADS=16, INTERLEAVED=interleaved, num_warps=2,
        )  # fmt: skip
    return out


def rotate_interleaved(x: Tensor, rotation: Tensor) -> Tensor:
    """See the reference; a conjugated view of the rotation costs nothing."""
    return _rotate(x, rotation, True)


def rotate_half_split(x: Tensor, rotation: Tensor) -> Tensor:
    """See the reference; a conjugated view of the rotation costs nothing."""
    return _rotate(x, rotation, False)
