"""Rotation of channel pairs on a GPU, a token's heads together. N tokens, D channels of which 2 * HALF are rotated."""

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
def partner_of(channel, FIRST: tl.constexpr, HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The channel that is rotated together with each one; itself for those outside FIRST .. FIRST + 2 HALF."""
    at = channel - FIRST
    step = tl.where((at % 2 if INTERLEAVED else at // HALF) == 0, 1, -1) * (1 if INTERLEAVED else HALF)
    return channel + tl.where((at >= 0) & (at < 2 * HALF), step, 0)


@triton.jit
def turned(own, partner, channel, angle_ptr, sign, FIRST: tl.constexpr, HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Values at `channel` after the rotation, from those before it there and at `partner_of`; others unchanged.

    angle_ptr: the token's float32 [HALF, 2], cosines and sines; the sines count `sign` times.
    """
    at = channel - FIRST
    inside = (at >= 0) & (at < 2 * HALF)
    pair = at // 2 if INTERLEAVED else at % HALF
    cos = tl.load(angle_ptr + 2 * pair, mask=inside, other=1.0)
    sin = tl.load(angle_ptr + 2 * pair + 1, mask=inside, other=0.0) * sign
    sin = tl.where((at % 2 if INTERLEAVED else at // HALF) == 0, -sin, sin)
    return tl.where(inside, own * cos + partner * sin, own)


@triton.jit
def _rotate_kernel(
    x_ptr,  # [N, heads, D], strides given
    angle_ptr,  # float32 [N, HALF, 2], cosine and sine
    out_ptr,  # [N, heads, D]
    heads,
    row_stride,
    head_stride,
    sign,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    FIRST: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    channel = tl.arange(0, PADDED)
    partner = partner_of(channel, FIRST, HALF, INTERLEAVED)
    inside = (head < heads)[:, None] & (channel < D)[None, :]
    x = x_ptr + n * row_stride + head[:, None] * head_stride
    own = tl.load(x + channel[None, :], mask=inside, other=0.0).to(tl.float32)
    other = tl.load(x + partner[None, :], mask=inside, other=0.0).to(tl.float32)
    y = turned(own, other, channel[None, :], angle_ptr + n * 2 * HALF, sign, FIRST, HALF, INTERLEAVED)
    out = out_ptr + (n * heads + head[:, None]) * D + channel[None, :]
    tl.store(out, y.to(out_ptr.dtype.element_ty), mask=inside)


def angles_of(rotation: Tensor) -> tuple[Tensor, float]:
    """Cosines and sines float32 [N, HALF, 2] with the sign of the sines; a conjugated view costs nothing."""
    sign = -1.0 if rotation.is_conj() else 1.0
    return torch.view_as_real(rotation.conj() if rotation.is_conj() else rotation).contiguous(), sign


def _rotate(x: Tensor, rotation: Tensor, first: int, interleaved: bool) -> Tensor:
    (tokens, heads, width), half = x.shape, rotation.shape[1]
    assert 0 <= first <= width - 2 * half
    x = x if x.stride(2) == 1 else x.contiguous()
    angles, sign = angles_of(rotation)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        padded = triton.next_power_of_2(width)
        together = max(1, min(16, 2048 // padded, triton.next_power_of_2(heads)))
        _rotate_kernel[(tokens, triton.cdiv(heads, together))](
            x, angles, out, heads, x.stride(0), x.stride(1), sign, D=width, PADDED=padded, HEADS=together, FIRST=first,
            HALF=half, INTERLEAVED=interleaved, num_warps=2,
        )  # fmt: skip
    return out


def rotate_interleaved(x: Tensor, rotation: Tensor, first: int = 0) -> Tensor:
    """See the reference; a conjugated view of the rotation costs nothing."""
    return _rotate(x, rotation, first, True)


def rotate_half_split(x: Tensor, rotation: Tensor, first: int = 0) -> Tensor:
    """See the reference; a conjugated view of the rotation costs nothing."""
    return _rotate(x, rotation, first, False)
