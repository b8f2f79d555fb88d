"""Writing packed FP8 cache rows on a GPU, bit-equal to the reference. N rows to write, one per program."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.cache_rows import reference
from kernels.choose import Case
from kernels.gpu import require_gpu


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _exponents(largest):
    """Biased exponents of the smallest powers of two that bring `largest` down to 448."""
    wanted = tl.maximum(largest, 1e-4) / 448.0
    bits = wanted.to(tl.int32, bitcast=True)
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32)


@triton.jit
def _codes(x, exponent):
    """e4m3 of x divided by 2^(exponent - 127), by multiplication with the inverse power, which is exact."""
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    x = x * inverse[:, None]
    return tl.minimum(tl.maximum(x, -448.0), 448.0).to(tl.float8e4nv)


@triton.jit
def _write_kernel(
    codes_ptr,  # float8e4nv view of the pool
    scales_ptr,  # float32 view (LATENT) or uint8 view of the pool
    half_ptr,  # bfloat16 view of the pool
    slots_ptr,  # int64 [N]
    x_ptr,  # [N, GROUPS * GROUP (+ 64)]
    rope_ptr,  # [N, 64]
    x_stride,
    rope_stride,
    BYTES: tl.constexpr,
    LATENT: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    ROPE: tl.constexpr,
):
    n = tl.program_id(0)
    slot = tl.load(slots_ptr + n)
    if slot >= 0:
        group = tl.arange(0, 8 if GROUPS == 7 else GROUPS)
        column, channel = tl.arange(0, GROUP), tl.arange(0, ROPE)
        real = group < GROUPS
        at = group[:, None] * GROUP + column[None, :]
        x = tl.load(x_ptr + n.to(tl.int64) * x_stride + at, mask=real[:, None], other=0.0).to(tl.float32)
        exponent = _exponents(tl.max(tl.abs(x), 1))
        tl.store(codes_ptr + slot * BYTES + at, _codes(x, exponent), mask=real[:, None])
        rope = tl.load(rope_ptr + n.to(tl.int64) * rope_stride + channel).to(tl.bfloat16)
        if LATENT:
            scale = (exponent << 23).to(tl.float32, bitcast=True)
            tl.store(scales_ptr + slot * (BYTES // 4) + GROUPS * GROUP // 4 + group, scale)
            tl.store(half_ptr + slot * (BYTES // 2) + (GROUPS * GROUP + GROUPS * 4) // 2 + channel, rope)
        else:
            tl.store(half_ptr + slot * (BYTES // 2) + GROUPS * GROUP // 2 + channel, rope)
            byte = tl.where(real, exponent, 0).to(tl.uint8)
            tl.store(scales_ptr + slot * BYTES + GROUPS * GROUP + ROPE * 2 + group, byte)


def write_latent_rows(pool: Tensor, slots: Tensor, latent: Tensor, rope: Tensor) -> None:
    """See the reference; inner dimensions contiguous."""
    assert latent.stride(1) == 1 and rope.stride(1) == 1 and pool.is_contiguous()
    if len(slots):
        _write_kernel[(len(slots),)](
            pool.view(torch.float8_e4m3fn), pool.view(torch.float32), pool.view(torch.bfloat16), slots, latent, rope,
            latent.stride(0), rope.stride(0), BYTES=reference.LATENT_BYTES, LATENT=True, GROUPS=4, GROUP=128,
            ROPE=reference.LATENT_ROPE, num_warps=1,
        )  # fmt: skip


def write_entry_rows(pool: Tensor, slots: Tensor, entry: Tensor) -> None:
    """See the reference; inner dimension contiguous."""
    assert entry.stride(1) == 1 and pool.is_contiguous()
    if len(slots):
        _write_kernel[(len(slots),)](
            pool.view(torch.float8_e4m3fn), pool, pool.view(torch.bfloat16), slots, entry, entry[:, 448:],
            entry.stride(0), entry.stride(0), BYTES=reference.ENTRY_BYTES, LATENT=False, GROUPS=7, GROUP=64,
            ROPE=reference.ENTRY_ROPE, num_warps=1,
        )  # fmt: skip
