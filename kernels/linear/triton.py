"""Dense products on a GPU: FP8 weights in Triton; bfloat16 and float32 weights are left to torch.

Sizes: N tokens, O outputs, I inputs in chunks of 128, S splits of the chunks. Weights e4m3 with one scale per
128 x 128 or 1 x 32; sums in float32, promoted every chunk.

Few tokens: bound by the one pass of the weights through memory, so small blocks of rows and splits of the inputs keep
many loads under way. e4m3 is widened to fp16, which is exact and one instruction for two values; a token's chunk is
brought near 2^15 by a power of two before it becomes fp16 too, exact for bfloat16 down to 2^-29 of its largest value.
The last program of a block to finish adds up the splits, in their order.
Many tokens: a product in e4m3, activations with one scale per token and chunk (as in kernels/experts/grouped.py).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case, Unsuitable
from kernels.experts.grouped import compute_type, quantize
from kernels.gpu import multiprocessors, require_gpu
from kernels.linear import FEW_TOKENS
from kernels.linear.reference import fp8_block
from kernels.swiglu.triton import swiglu

_SPLITS = tl.constexpr(8)  # at most
_COUNTERS = 4096  # blocks of outputs that may be split


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU; FP8 weights want whole chunks, and of many tokens no smaller blocks."""
    require_gpu(case)
    if name == "linear_fp8" and case is not None:
        assert isinstance(case.shape, tuple)
        columns, whole, tokens = case.shape
        if not whole:
            raise Unsuitable("it is for rows of whole blocks of 128")
        if columns != 128 and tokens == "many":
            raise Unsuitable("scales of 32 columns do not fit its products of many tokens")


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor, limit: float | None) -> Tensor:
    """See the reference."""
    return F.linear(swiglu(F.linear(x, gate_up.to(x.dtype)), limit), down.to(x.dtype))


@triton.jit
def _scale(scale_ptr, at, BYTES: tl.constexpr):
    """float32 scales; BYTES: they are e8m0, where 0 is 2^-127 and 255 no number."""
    scale = tl.load(scale_ptr + at)
    if BYTES:
        byte = scale.to(tl.int32)
        bits = tl.where(byte == 0, 0x400000, byte << 23)
        return tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)
    else:
        return scale.to(tl.float32)


@triton.jit(do_not_specialize=["N", "O", "chunks"], do_not_specialize_on_alignment=["share"])
def _few_kernel(
    x_ptr,  # [N, I], rows `stride` apart
    codes_ptr,  # float8e4nv [O, I]
    scale_ptr,  # float32 or e8m0 bytes
    out_ptr,  # [N, O]
    parts_ptr,  # float32 [S, N, O], written if SPLIT
    counter_ptr,  # int32 per block of outputs, zero, if SPLIT
    N,
    O,
    chunks,
    share,  # chunks per split
    stride,
    BO: tl.constexpr,
    BN: tl.constexpr,
    COLUMNS: tl.constexpr,
    BYTES: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
):
    block, split = tl.program_id(0), tl.program_id(1)
    row, n, k = block * BO + tl.arange(0, BO), tl.arange(0, BN), tl.arange(0, 128)
    real = tl.minimum(row, O - 1).to(tl.int64)  # what lies behind the last row is not stored
    known = n < N
    acc = tl.zeros([BO, BN], tl.float32)
    for t in tl.range(split * share, tl.minimum((split + 1) * share, chunks), num_stages=STAGES):
        codes = tl.load(codes_ptr + real[:, None] * (chunks * 128) + (t * 128 + k)[None, :])
        x = tl.load(x_ptr + n[:, None].to(tl.int64) * stride + (t * 128 + k)[None, :], mask=known[:, None], other=0.0)
        x = x.to(tl.float32)
        exponent = (tl.max(tl.abs(x), 1).to(tl.int32, bitcast=True) >> 23) - 127
        exponent = tl.minimum(tl.maximum(exponent, -100), 100)
        up = ((14 - exponent + 127) << 23).to(tl.float32, bitcast=True)
        unit = ((exponent - 14 + 127) << 23).to(tl.float32, bitcast=True)
        weight = codes.to(tl.float16)
        if COLUMNS == 32:
            group = tl.arange(0, 4)
            scale = _scale(scale_ptr, real[:, None] * (chunks * 4) + t * 4 + group[None, :], BYTES)
            largest = tl.max(scale, 1)
            ratio = (scale / tl.where(largest == 0.0, 1.0, largest)[:, None]).to(tl.float16)
            weight = tl.reshape(tl.reshape(weight, [BO, 4, 32]) * ratio[:, :, None], [BO, 128])
            factor = largest[:, None] * unit[None, :]
        else:
            factor = (_scale(scale_ptr, block * BO // 128 * chunks + t, BYTES) * unit)[None, :]
        acc += tl.dot(weight, tl.trans((x * up[:, None]).to(tl.float16))) * factor
    at = n[None, :].to(tl.int64) * O + row[:, None]
    inside = (row < O)[:, None] & known[None, :]
    if SPLIT:
        size = N.to(tl.int64) * O
        tl.store(parts_ptr + split * size + at, acc, mask=inside)
        tl.debug_barrier()  # all threads have written before the counter says so
        splits = tl.num_programs(1)
        if tl.atomic_add(counter_ptr + block, 1, sem="acq_rel", scope="gpu") == splits - 1:
            tl.debug_barrier()
            tl.store(counter_ptr + block, 0)
            acc = tl.zeros([BO, BN], tl.float32)
            for s in tl.static_range(_SPLITS):
                mask = inside & (s < splits)
                acc += tl.load(parts_ptr + s * size + at, mask=mask, other=0.0, cache_modifier=".cg")
            tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N", "O", "chunks"])
def _many_kernel(
    x_ptr,  # float8e4nv [N, I]
    x_scale_ptr,  # float32 [I / 128, N]
    codes_ptr,  # float8e4nv [O, I]
    scale_ptr,  # float32 or e8m0 bytes
    out_ptr,  # [N, O]
    N,
    O,
    chunks,
    BM: tl.constexpr,
    BO: tl.constexpr,
    BYTES: tl.constexpr,
    TOGETHER: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Blocks of TOGETHER token tiles pass over the outputs together, so that weights are read from the L2 cache."""
    tiles, blocks = tl.cdiv(N, BM), tl.cdiv(O, BO)
    first = tl.program_id(0) // (TOGETHER * blocks) * TOGETHER
    together = tl.minimum(tiles - first, TOGETHER)
    tile = first + tl.program_id(0) % (TOGETHER * blocks) % together
    block = tl.program_id(0) % (TOGETHER * blocks) // together
    token, column, k = tile * BM + tl.arange(0, BM), block * BO + tl.arange(0, BO), tl.arange(0, 128)
    x_row = tl.minimum(token, N - 1).to(tl.int64)
    w_row = tl.minimum(column, O - 1).to(tl.int64)
    acc = tl.zeros([BM, BO], tl.float32)
    for t in tl.range(0, chunks, num_stages=STAGES):
        x = tl.load(x_ptr + x_row[:, None] * (chunks * 128) + (t * 128 + k)[None, :])
        w = tl.load(codes_ptr + w_row[None, :] * (chunks * 128) + (t * 128 + k)[:, None])
        factor = tl.load(x_scale_ptr + t * N + x_row) * _scale(scale_ptr, block * BO // 128 * chunks + t, BYTES)
        acc += tl.dot(x.to(COMPUTE), w.to(COMPUTE)) * factor[:, None]
    inside = (token < N)[:, None] & (column < O)[None, :]
    at = token.to(tl.int64)[:, None] * O + column[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)


class FewTiles(NamedTuple):
    """Rows of the matrix per program, programs per processor that splitting aims at, pipeline stages, warps."""

    rows: int
    programs: int
    stages: int
    warps: int


class ManyTiles(NamedTuple):
    """Tokens and outputs of a tile (outputs up to 128), token tiles that go together, pipeline stages, warps."""

    tokens: int
    outputs: int
    together: int
    stages: int
    warps: int


FEW, MANY = FewTiles(64, 4, 5, 4), ManyTiles(128, 128, 8, 3, 8)
_counters: dict[torch.device, Tensor] = {}


def _counters_of(device: torch.device) -> Tensor:
    """Zeroed once, left at zero by every launch; launches of a device must follow each other, as on one stream they do."""
    if device not in _counters:
        _counters[device] = torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
    return _counters[device]


def linear_fp8(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """See the reference; few tokens as fp16 with a power of two, many rounded to e4m3. Codes and scales contiguous."""
    assert codes.is_contiguous() and scales.is_contiguous() and codes.shape[1] % 128 == 0
    if scales.dtype == torch.float8_e8m0fnu:
        scales = scales.view(torch.uint8)
    x = x if x.stride(1) == 1 else x.contiguous()
    out = torch.empty(x.shape[0], codes.shape[0], dtype=x.dtype, device=x.device)
    if out.numel():
        (_few if x.shape[0] <= FEW_TOKENS else _many)(x, codes, scales, out)
    return out


def _few(x: Tensor, codes: Tensor, scales: Tensor, out: Tensor, cut: FewTiles = FEW) -> None:
    (tokens, outputs), chunks = out.shape, codes.shape[1] // 128
    blocks = triton.cdiv(outputs, cut.rows)
    wanted = cut.programs * multiprocessors(x.device) // blocks if blocks <= _COUNTERS else 1
    share = triton.cdiv(chunks, max(1, min(wanted, _SPLITS.value, chunks)))
    splits = triton.cdiv(chunks, share)
    parts = torch.empty((splits, tokens, outputs) if splits > 1 else 1, dtype=torch.float32, device=x.device)
    _few_kernel[(blocks, splits)](
        x, codes, scales, out, parts, _counters_of(x.device), tokens, outputs, chunks, share, x.stride(0), BO=cut.rows,
        BN=max(16, triton.next_power_of_2(tokens)), COLUMNS=fp8_block(codes, scales)[1], BYTES=scales.dtype == torch.uint8,
        SPLIT=splits > 1, STAGES=cut.stages, num_warps=cut.warps,
    )  # fmt: skip


def _many(x: Tensor, codes: Tensor, scales: Tensor, out: Tensor, cut: ManyTiles = MANY) -> None:
    tokens, outputs = out.shape
    rounded, x_scale = quantize(x.contiguous())
    _many_kernel[(triton.cdiv(tokens, cut.tokens) * triton.cdiv(outputs, cut.outputs),)](
        rounded, x_scale, codes, scales, out, tokens, outputs, codes.shape[1] // 128, BM=cut.tokens, BO=cut.outputs,
        BYTES=scales.dtype == torch.uint8, TOGETHER=cut.together, STAGES=cut.stages, COMPUTE=compute_type(),
        num_warps=cut.warps,
    )  # fmt: skip
