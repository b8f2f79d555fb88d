"""Writing cache rows and packing index queries on a GPU. One row, or the heads of one query, per program.

Everything is float32 until it is stored. Packed rows are the packing of what a float32 pool of the same width gets.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_rows import reference
from kernels.choose import Case
from kernels.gpu import require_gpu
from kernels.rope.triton import angles_of, partner_of, turned

PLAIN, ROWS, KEYS = (tl.constexpr(form) for form in range(3))  # numbers, packed rows, packed index keys
LATENT_BYTES, ENTRY_BYTES = tl.constexpr(reference.LATENT_BYTES), tl.constexpr(reference.ENTRY_BYTES)


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _exponents(x):
    """Biased exponents of the smallest powers of two that bring the largest of |x| [A, B], at least 1e-4, down to 448."""
    bits = tl.maximum(tl.max(tl.abs(x), 1), 1e-4).to(tl.int32, bitcast=True)
    return ((bits + 0x1FFFFF) >> 23) - 8  # one more from beyond 1.75 * 2^k, since 448 = 1.75 * 2^8


@triton.jit
def _codes(x, exponent):
    """e4m3 of x divided by 2^(exponent - 127), by multiplication with the inverse power, which is exact."""
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    return (x * inverse[:, None]).to(tl.float8e4nv)


@triton.jit
def _scales(exponent):
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _moments(x_ptr, eps, D: tl.constexpr, PADDED: tl.constexpr, CENTRED: tl.constexpr):
    """Mean (0 unless CENTRED) of a row and what its norm multiplies with.

    They have a load of their own, since the compiler orders sums by how their operands are loaded and stored: like this
    no bit depends on the form a row is stored in.
    """
    at = tl.arange(0, PADDED)
    x = tl.load(x_ptr + at, mask=at < D, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / D if CENTRED else 0.0
    x = tl.where(at < D, x - mean, 0.0)
    return mean, tl.rsqrt(tl.sum(x * x, 0) / D + eps)


@triton.jit
def _normed(own, at, mean, factor, weight_ptr, bias_ptr, inside, CENTRED: tl.constexpr):
    y = (own - mean) * factor * tl.load(weight_ptr + at, mask=inside, other=0.0)
    if CENTRED:
        y += tl.load(bias_ptr + at, mask=inside, other=0.0)
    return y


@triton.jit
def _latent_kernel(
    latent_ptr,  # [.., C], or float8e4nv view of packed rows
    rope_ptr,  # [.., 2 HALF], or bfloat16 view of packed rows
    scale_ptr,  # float32 view of packed rows
    slots_ptr,  # int64 [N]
    x_ptr,  # [N, C + 2 HALF], rows `stride` apart
    weight_ptr,  # float32 [C]
    angle_ptr,  # float32 [N, HALF, 2]
    stride,
    eps,
    sign,
    C: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    HALF: tl.constexpr,
    ROPE: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    FORM: tl.constexpr,
):
    """Latents are seen as [GROUPS, GROUP], of which C are real; a packed group has one scale."""
    n = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + n)
    if slot >= 0:
        group, channel = tl.arange(0, GROUPS), tl.arange(0, ROPE)
        at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        x = tl.load(x_ptr + n * stride + at, mask=at < C, other=0.0).to(tl.float32)
        mean, factor = _moments(x_ptr + n * stride, eps, C, GROUPS * GROUP, False)
        y = _normed(x, at, mean, factor, weight_ptr, weight_ptr, at < C, False)
        key, inside = x_ptr + n * stride + C, channel < 2 * HALF
        own = tl.load(key + channel, mask=inside, other=0.0).to(tl.float32)
        partner = tl.load(key + partner_of(channel, 0, HALF, INTERLEAVED), mask=inside, other=0.0).to(tl.float32)
        rope = turned(own, partner, channel, angle_ptr + n * 2 * HALF, sign, 0, HALF, INTERLEAVED)
        if FORM == ROWS:
            exponent = _exponents(y)
            tl.store(latent_ptr + slot * LATENT_BYTES + at, _codes(y, exponent))
            tl.store(scale_ptr + slot * (LATENT_BYTES // 4) + C // 4 + group, _scales(exponent))
            tl.store(rope_ptr + slot * (LATENT_BYTES // 2) + C // 2 + 2 * GROUPS + channel, rope.to(tl.bfloat16))
        else:
            tl.store(latent_ptr + slot * C + at, y.to(latent_ptr.dtype.element_ty), mask=at < C)
            tl.store(rope_ptr + slot * 2 * HALF + channel, rope.to(rope_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _row_kernel(
    row_ptr,  # [.., D], or float8e4nv view of packed rows or keys
    half_ptr,  # bfloat16 view of packed rows
    scale_ptr,  # uint8 (ROWS) or float32 (KEYS) view
    slots_ptr,  # int64 [N]
    x_ptr,  # [N, D], rows `stride` apart
    weight_ptr,  # float32 [D]
    bias_ptr,  # float32 [D] if CENTRED
    angle_ptr,  # float32 [N, HALF, 2]
    stride,
    eps,
    sign,
    page,  # index keys in one page
    D: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    FIRST: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    CENTRED: tl.constexpr,
    FORM: tl.constexpr,
):
    """A row is seen as [GROUPS, GROUP], of which D are real; the last group of a packed row stays bfloat16."""
    n = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + n)
    if slot >= 0:
        group = tl.arange(0, GROUPS)
        at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        inside = at < D
        partner = partner_of(at, FIRST, HALF, INTERLEAVED)
        x = tl.load(x_ptr + n * stride + at, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(x_ptr + n * stride + partner, mask=inside, other=0.0).to(tl.float32)
        mean, factor = _moments(x_ptr + n * stride, eps, D, GROUPS * GROUP, CENTRED)
        y = _normed(x, at, mean, factor, weight_ptr, bias_ptr, inside, CENTRED)
        other = _normed(other, partner, mean, factor, weight_ptr, bias_ptr, inside, CENTRED)
        y = turned(y, other, at, angle_ptr + n * 2 * HALF, sign, FIRST, HALF, INTERLEAVED)
        if FORM == PLAIN:
            tl.store(row_ptr + slot * D + at, y.to(row_ptr.dtype.element_ty), mask=inside)
        else:
            exponent = _exponents(y)
            codes = _codes(y, exponent)
            if FORM == ROWS:
                packed = (group < GROUPS - 1)[:, None]
                tl.store(row_ptr + slot * ENTRY_BYTES + at, codes, mask=packed)
                tl.store(
                    half_ptr + slot * (ENTRY_BYTES // 2) - (D - GROUP) // 2 + at, y.to(tl.bfloat16), mask=packed == 0
                )
                byte = tl.where(group < GROUPS - 1, exponent, 0).to(tl.uint8)
                tl.store(scale_ptr + slot * ENTRY_BYTES + D + GROUP + group, byte)
            else:
                first = slot // page * page * (D + 4)  # of the page, in bytes
                tl.store(row_ptr + first + slot % page * D + at, codes)
                tl.store(scale_ptr + (first + page * D) // 4 + slot % page + group, _scales(exponent))


@triton.jit
def _query_kernel(
    x_ptr,  # [N, heads, D], strides given
    weight_ptr,  # float32 [N, heads]
    angle_ptr,  # float32 [N, HALF, 2]
    codes_ptr,  # float8e4nv [N, heads, D]
    out_ptr,  # float32 [N, heads]
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
    inside = (head < heads)[:, None] & (channel < D)[None, :]
    x = x_ptr + n * row_stride + head[:, None] * head_stride
    partner = partner_of(channel, FIRST, HALF, INTERLEAVED)
    own = tl.load(x + channel[None, :], mask=inside, other=0.0).to(tl.float32)
    other = tl.load(x + partner[None, :], mask=inside, other=0.0).to(tl.float32)
    y = turned(own, other, channel[None, :], angle_ptr + n * 2 * HALF, sign, FIRST, HALF, INTERLEAVED)
    exponent = _exponents(y)
    tl.store(codes_ptr + (n * heads + head[:, None]) * D + channel[None, :], _codes(y, exponent), mask=inside)
    weight = tl.load(weight_ptr + n * heads + head, mask=head < heads, other=0.0)
    tl.store(out_ptr + n * heads + head, weight * _scales(exponent), mask=head < heads)


def write_latents(
    latent_pool: Tensor,
    rope_pool: Tensor | None,
    slots: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    rotation: Tensor,
    interleaved: bool,
) -> None:
    """See the reference; pools and the rows of x contiguous."""
    width, half = len(weight), rotation.shape[1]
    assert x.stride(1) == 1 and x.shape[1] == width + 2 * half and latent_pool.is_contiguous()
    scales = latent_pool
    if rope_pool is None:
        assert (latent_pool.shape[-1], width, half) == (
            reference.LATENT_BYTES,
            reference.LATENT,
            reference.LATENT_ROPE // 2,
        )
        rope_pool, scales = latent_pool.view(torch.bfloat16), latent_pool.view(torch.float32)
        latent_pool, form = latent_pool.view(torch.float8_e4m3fn), ROWS
    else:
        assert rope_pool.is_contiguous()
        form = PLAIN
    groups = 4 if width == reference.LATENT else 1
    angles, sign = angles_of(rotation)
    if len(x):
        _latent_kernel[(len(x),)](
            latent_pool, rope_pool, scales, slots, x, weight, angles, x.stride(0), eps, sign, C=width, GROUPS=groups,
            GROUP=triton.next_power_of_2(width) // groups, HALF=half, ROPE=triton.next_power_of_2(2 * half),
            INTERLEAVED=interleaved, FORM=form, num_warps=1,
        )  # fmt: skip


def write_rows(
    pool: Tensor,
    slots: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    rotation: Tensor,
    first: int,
    interleaved: bool,
) -> None:
    """See the reference; pool and the rows of x contiguous."""
    width, half, page = x.shape[1], rotation.shape[1], 1
    assert x.stride(1) == 1 and 0 <= first <= width - 2 * half and pool.is_contiguous()
    halves = scales = pool
    if pool.dtype != torch.uint8:
        form = PLAIN
    elif pool.shape[-1] == reference.ENTRY_BYTES:
        assert width == reference.ENTRY
        form, halves = ROWS, pool.view(torch.bfloat16)
    else:
        assert width == triton.next_power_of_2(width)
        form, page, scales = KEYS, pool.shape[1] // (width + 4), pool.view(torch.float32)
    groups = 8 if width == reference.ENTRY else 1
    angles, sign = angles_of(rotation)
    if len(x):
        _row_kernel[(len(x),)](
            pool if form == PLAIN else pool.view(torch.float8_e4m3fn), halves, scales, slots, x, weight,
            weight if bias is None else bias, angles, x.stride(0), eps, sign, page, D=width, GROUPS=groups,
            GROUP=triton.next_power_of_2(width) // groups, FIRST=first, HALF=half, INTERLEAVED=interleaved,
            CENTRED=bias is not None, FORM=form, num_warps=1,
        )  # fmt: skip


def pack_queries(x: Tensor, weights: Tensor, rotation: Tensor, first: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """See the reference."""
    (tokens, heads, width), half = x.shape, rotation.shape[1]
    assert 0 <= first <= width - 2 * half
    x = x if x.stride(2) == 1 else x.contiguous()
    angles, sign = angles_of(rotation)
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scaled = torch.empty(tokens, heads, dtype=torch.float32, device=x.device)
    if x.numel():
        padded = triton.next_power_of_2(width)
        together = max(1, min(16, 2048 // padded, triton.next_power_of_2(heads)))
        _query_kernel[(tokens, triton.cdiv(heads, together))](
            x, weights.contiguous(), angles, codes, scaled, heads, x.stride(0), x.stride(1), sign, D=width,
            PADDED=padded, HEADS=together, FIRST=first, HALF=half, INTERLEAVED=interleaved, num_warps=2,
        )  # fmt: skip
    return codes, scaled
