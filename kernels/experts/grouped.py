"""Many tokens on a GPU: FP8 products of the tokens routed to each expert, from the FP8 workspace.

Sizes: N tokens, k experts per token, P = N k routed rows sorted by expert, E experts, H hidden, I expert width, K columns
of a product. Rows are cut into tiles of BM that never span two experts; `tile_expert` and `tile_row` say whose they are.
Activations are e4m3 with one float32 scale per row and 128 columns; every 128 columns the sum is promoted to float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.experts.reference import Fp8Matrix
from kernels.gpu import interpreted


@triton.jit
def _e4m3(x, COMPUTE: tl.constexpr):
    """Round to e4m3. Triton's interpreter loses a carry when it rounds, so there x is brought onto the grid first."""
    if COMPUTE == tl.float32:  # noqa: SIM300 - a type, not a constant
        exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 255, 121)
        step = ((exponent - 3) << 23).to(tl.float32, bitcast=True)
        x = ((x / step + 12582912.0) - 12582912.0) * step
    return x.to(tl.float8e4nv)


@triton.jit(do_not_specialize=["blocks", "rows"])
def _quantize_kernel(
    x_ptr,  # [N, H]
    codes_ptr,  # float8e4nv [N, H]
    scale_ptr,  # float32 [H / 128, N]
    blocks,
    rows,
    per_row,
    ROWS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """One float32 scale (largest magnitude / 448) per 128 columns."""
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, 128)
    inside = at < blocks
    place = at.to(tl.int64)[:, None] * 128 + column[None, :]
    x = tl.load(x_ptr + place, mask=inside[:, None], other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 1), 1e-10) / 448.0
    tl.store(codes_ptr + place, _e4m3(x / scale[:, None], COMPUTE), mask=inside[:, None])
    tl.store(scale_ptr + (at % per_row) * rows + at // per_row, scale, mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _gate_up_kernel(
    x_ptr,  # float8e4nv [N, K]
    x_scale_ptr,  # float32 [K / 128, N]
    w_ptr,  # float8e4nv [E, 2I, K]
    w_scale_ptr,  # float32 [E, K / 128, 2I]
    row_token_ptr,  # int32 [P], token of each routed row
    tile_expert_ptr,  # int32 [tiles], -1 behind the last
    tile_row_ptr,  # int32 [tiles]
    row_end_ptr,  # int32 [E], end of each expert's rows
    hidden_ptr,  # bfloat16 [P, I]
    tokens,
    limit,
    K: tl.constexpr,
    I: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CLAMP: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """hidden = swiglu of the tile's rows, BN columns of gate and of up."""
    tile = tl.program_id(0) // (I // BN)
    block = tl.program_id(0) % (I // BN)
    e = tl.load(tile_expert_ptr + tile).to(tl.int64)
    if e >= 0:
        row = tl.load(tile_row_ptr + tile) + tl.arange(0, BM)
        real = row < tl.load(row_end_ptr + e)
        token = tl.load(row_token_ptr + row, mask=real, other=0).to(tl.int64)
        column, k = block * BN + tl.arange(0, BN), tl.arange(0, 128)
        gate_row = e * (2 * I) + column
        gate = tl.zeros([BM, BN], tl.float32)
        up = tl.zeros([BM, BN], tl.float32)
        for t in tl.range(0, K // 128, num_stages=STAGES):
            x = tl.load(x_ptr + token[:, None] * K + (t * 128 + k)[None, :], mask=real[:, None], other=0.0)
            xs = tl.load(x_scale_ptr + t * tokens + token, mask=real, other=0.0)
            g = tl.load(w_ptr + gate_row[None, :] * K + (t * 128 + k)[:, None])
            u = tl.load(w_ptr + (gate_row + I)[None, :] * K + (t * 128 + k)[:, None])
            gs = tl.load(w_scale_ptr + (e * (K // 128) + t) * (2 * I) + column)
            us = tl.load(w_scale_ptr + (e * (K // 128) + t) * (2 * I) + I + column)
            gate += tl.dot(x.to(COMPUTE), g.to(COMPUTE)) * (xs[:, None] * gs[None, :])
            up += tl.dot(x.to(COMPUTE), u.to(COMPUTE)) * (xs[:, None] * us[None, :])
        if CLAMP:
            gate = tl.minimum(gate, limit)
            up = tl.minimum(tl.maximum(up, -limit), limit)
        h = gate / (1.0 + tl.exp(-gate)) * up
        at = hidden_ptr + row.to(tl.int64)[:, None] * I + column[None, :]
        tl.store(at, h.to(hidden_ptr.dtype.element_ty), mask=real[:, None])


@triton.jit
def _scales_kernel(
    byte_ptr,  # uint8 [E, R, B]
    scale_ptr,  # float32 [E, B, R]
    R,
    B: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """e8m0 bytes, never 255, to float32 with the rows last, so that the products read them in one piece."""
    e = tl.program_id(0).to(tl.int64)
    r, b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PADDED)
    inside = (r < R)[:, None] & (b < B)[None, :]
    byte = tl.load(byte_ptr + (e * R + r)[:, None] * B + b[None, :], mask=inside, other=127).to(tl.int32)
    scale = tl.where(byte == 0, 0x400000, byte << 23).to(tl.float32, bitcast=True)
    tl.store(scale_ptr + (e * B + b)[:, None] * R + r[None, :], tl.trans(scale), mask=tl.trans(inside))


@triton.jit(do_not_specialize=["routed"])
def _down_kernel(
    x_ptr,  # float8e4nv [P, K]
    x_scale_ptr,  # float32 [K / 128, P]
    w_ptr,  # float8e4nv [E, H, K]
    w_scale_ptr,  # float32 [E, K / 128, H]
    share_ptr,  # float32 [P]
    place_ptr,  # int32 [P], position of each routed row in the order of tokens
    tile_expert_ptr,  # int32 [tiles]
    tile_row_ptr,  # int32 [tiles]
    row_end_ptr,  # int32 [E]
    out_ptr,  # [P, H], in the order of tokens, times the row's weight
    routed,
    K: tl.constexpr,
    H: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    tile = tl.program_id(0) // (H // BN)
    block = tl.program_id(0) % (H // BN)
    e = tl.load(tile_expert_ptr + tile).to(tl.int64)
    if e >= 0:
        row = tl.load(tile_row_ptr + tile) + tl.arange(0, BM)
        real = row < tl.load(row_end_ptr + e)
        at = row.to(tl.int64)
        column, k = block * BN + tl.arange(0, BN), tl.arange(0, 128)
        w_row = e * H + column
        acc = tl.zeros([BM, BN], tl.float32)
        for t in tl.range(0, K // 128, num_stages=STAGES):
            x = tl.load(x_ptr + at[:, None] * K + (t * 128 + k)[None, :], mask=real[:, None], other=0.0)
            xs = tl.load(x_scale_ptr + t * routed + row, mask=real, other=0.0)
            w = tl.load(w_ptr + w_row[None, :] * K + (t * 128 + k)[:, None])
            ws = tl.load(w_scale_ptr + (e * (K // 128) + t) * H + column)
            acc += tl.dot(x.to(COMPUTE), w.to(COMPUTE)) * (xs[:, None] * ws[None, :])
        acc = acc * tl.load(share_ptr + row, mask=real, other=0.0)[:, None]
        place = tl.load(place_ptr + row, mask=real, other=0).to(tl.int64)
        out = acc.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + place[:, None] * H + column[None, :], out, mask=real[:, None])


@triton.jit
def _sum_kernel(
    parts_ptr,  # [N, k, H]
    out_ptr,  # [N, H]
    H,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum of a token's k weighted rows, in their order."""
    n = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(SLOTS):
        total += tl.load(parts_ptr + (n * SLOTS + j) * H + column, mask=column < H, other=0.0).to(tl.float32)
    tl.store(out_ptr + n * H + column, total.to(out_ptr.dtype.element_ty), mask=column < H)


class _Plan(NamedTuple):
    row_token: Tensor
    place: Tensor
    share: Tensor
    tile_expert: Tensor
    tile_row: Tensor
    row_end: Tensor


def _plan(ids: Tensor, weights: Tensor, experts: int, rows: int) -> _Plan:
    """Sort the routed rows by expert and cut them into tiles, all on the device; unused tiles get expert -1."""
    flat = ids.flatten()
    order = flat.argsort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=ids.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat))
    ends = counts.cumsum(0)
    tiles = (counts + rows - 1) // rows
    tile_ends = tiles.cumsum(0)
    number = torch.arange(flat.numel() // rows + min(experts, flat.numel()), device=ids.device)
    expert = torch.searchsorted(tile_ends, number, right=True)
    known = expert < experts
    inside = expert.clamp(max=experts - 1)
    row = ends[inside] - counts[inside] + (number - (tile_ends[inside] - tiles[inside])) * rows
    return _Plan(
        (order // ids.shape[1]).int(),
        order.int(),
        weights.float().flatten()[order].contiguous(),
        torch.where(known, expert, -1).int(),
        row.int(),
        ends.int(),
    )


class Tiles(NamedTuple):
    """Rows of a tile, columns of gate (and as many of up), pipeline stages of both products, warps."""

    rows: int
    up_columns: int
    up_stages: int
    down_stages: int
    warps: int


DEFAULT = Tiles(64, 128, 3, 4, 8)


def compute_type() -> tl.dtype:
    """What e4m3 is multiplied as; the interpreter knows no such product."""
    return tl.float32 if interpreted() else tl.float8e4nv


def _scales(byte: Tensor) -> Tensor:
    experts, rows, blocks = byte.shape
    scale = torch.empty(experts, blocks, rows, dtype=torch.float32, device=byte.device)
    _scales_kernel[(experts, triton.cdiv(rows, 128))](
        byte, scale, rows, B=blocks, PADDED=triton.next_power_of_2(blocks), BLOCK=128, num_warps=4
    )
    return scale


def quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [N, H] to e4m3 [N, H] and float32 scales [H / 128, N]; H a multiple of 128."""
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty(x.shape[1] // 128, x.shape[0], dtype=torch.float32, device=x.device)
    blocks = scale.numel()
    _quantize_kernel[(triton.cdiv(blocks, 16),)](
        x, codes, scale, blocks, x.shape[0], x.shape[1] // 128, ROWS=16, COMPUTE=compute_type(), num_warps=4
    )  # fmt: skip
    return codes, scale


def fp8_experts(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Fp8Matrix,
    down: Fp8Matrix,
    limit: float | None,
    cut: Tiles = DEFAULT,
) -> Tensor:
    """See the reference; contiguous matrices with scales per row and 128 columns, hidden and width multiples of 128."""
    (tokens, hidden), width, experts = x.shape, down.codes.shape[2], gate_up.codes.shape[0]
    assert hidden % 128 == 0 and width % 128 == 0
    assert gate_up.scale.shape[2] * 128 == hidden and down.scale.shape[2] * 128 == width
    routed = ids.numel()
    out = torch.empty_like(x)
    if routed == 0:
        return out
    rows = cut.rows
    if interpreted():
        rows = 32
    plan = _plan(ids, weights, experts, rows)
    codes, scale = quantize(x.contiguous())
    inner = torch.empty(routed, width, dtype=torch.float32 if interpreted() else torch.bfloat16, device=x.device)
    parts = torch.empty(tokens, ids.shape[1], hidden, dtype=x.dtype, device=x.device)
    tiles = len(plan.tile_expert)
    compute = compute_type()
    _gate_up_kernel[(tiles * (width // cut.up_columns),)](
        codes, scale, gate_up.codes, _scales(gate_up.scale), plan.row_token, plan.tile_expert, plan.tile_row, plan.row_end,
        inner, tokens, 0.0 if limit is None else limit, K=hidden, I=width, BM=rows, BN=cut.up_columns,
        CLAMP=limit is not None, STAGES=cut.up_stages, COMPUTE=compute, num_warps=cut.warps,
    )  # fmt: skip
    inner_codes, inner_scale = quantize(inner)
    _down_kernel[(tiles * (hidden // 128),)](
        inner_codes, inner_scale, down.codes, _scales(down.scale), plan.share, plan.place, plan.tile_expert, plan.tile_row,
        plan.row_end, parts, routed, K=width, H=hidden, BM=rows, BN=128, STAGES=cut.down_stages, COMPUTE=compute,
        num_warps=cut.warps,
    )  # fmt: skip
    _sum_kernel[(tokens, triton.cdiv(hidden, 1024))](parts, out, hidden, SLOTS=ids.shape[1], BLOCK=1024)
    return out
