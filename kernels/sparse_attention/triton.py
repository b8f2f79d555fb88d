"""Sparse attention on a GPU: many queries one by one, few queries with their rows split over programs and combined.

Sizes: N queries, H heads in blocks of BH, rows in tiles of BK, C latent width, R rope width, S splits.
Logits are kept times log2(e); the running maximum starts at -1e30, never at -inf. One softmax runs over both sources.
Row formats: 0 plain, 656 and 584 packed (see kernels/cache_rows), decoded to bfloat16 as they are read.
Nothing that grows with a conversation is compiled in: at most two sizes of tile and of combination, split or not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import interpreted, multiprocessors, require_gpu
from kernels.sparse_attention.reference import Rows

_LOG2_E = 1.4426950408889634
_UNIT = 16  # lists are padded to a multiple, so that the compiler may count on it


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _rows(
    latent_ptr, rope_ptr, scale_ptr, row, real, C: tl.constexpr, WIDE: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    FORMAT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Rows [BK, WIDE] and, with R > 0, their rope parts [BK, RP]; absent rows are zero."""
    c, r = tl.arange(0, WIDE), tl.arange(0, RP)
    there = real[:, None]
    if FORMAT == 0:
        x = tl.load(latent_ptr + row[:, None] * C + c[None, :], mask=there & (c < C)[None, :], other=0.0).to(COMPUTE)
        y = x
        if R > 0:
            y = tl.load(rope_ptr + row[:, None] * R + r[None, :], mask=there & (r < R)[None, :], other=0.0).to(COMPUTE)
    elif FORMAT == 656:
        codes = tl.load(latent_ptr + row[:, None] * 656 + c[None, :], mask=there, other=0.0)
        part = tl.arange(0, 4)
        factor = tl.load(scale_ptr + row[:, None] * 164 + 128 + part[None, :], mask=there, other=0.0)
        x = tl.reshape(codes.to(tl.float32), [row.shape[0], 4, 128]) * factor[:, :, None]
        x = tl.reshape(x, [row.shape[0], WIDE]).to(COMPUTE)
        y = tl.load(rope_ptr + row[:, None] * 328 + 264 + r[None, :], mask=there, other=0.0).to(COMPUTE)
    else:
        codes = tl.load(latent_ptr + row[:, None] * 584 + c[None, :], mask=there & (c < 448)[None, :], other=0.0)
        part = tl.arange(0, 8)
        byte = tl.load(scale_ptr + row[:, None] * 584 + 576 + part[None, :], mask=there, other=0).to(tl.int32)
        factor = (byte << 23).to(tl.float32, bitcast=True)
        x = tl.reshape(codes.to(tl.float32), [row.shape[0], 8, 64]) * factor[:, :, None]
        x = tl.reshape(x, [row.shape[0], WIDE])
        turned = tl.load(
            rope_ptr + row[:, None] * 292 + (c - 224)[None, :], mask=there & (c >= 448)[None, :], other=0.0
        )
        x = (x + turned.to(tl.float32)).to(COMPUTE)
        y = x
    return x, y


@triton.jit
def _joined(a_ptr, b_ptr, in_a, SOURCES: tl.constexpr):
    """Base pointer of each place of the joined list."""
    if SOURCES == 2:
        return tl.where(in_a, a_ptr, b_ptr)
    else:
        return a_ptr


@triton.jit(do_not_specialize=["units_a", "units_b"], do_not_specialize_on_alignment=["share"])
def _attention_kernel(
    q_ptr,  # [N, H, C], strides given
    q_rope_ptr,  # [N, H, R], strides given
    latent_a, rope_a, scale_a, slots_a,  # first source; slots [N, 16 units_a]
    latent_b, rope_b, scale_b, slots_b,  # second source
    sinks_ptr,  # float32 [H]
    out_ptr,  # [N, H, C]
    parts_ptr,  # float32 [N, S, H, C], written if SPLIT
    sums_ptr,  # float32 [N, S, H, 2]: peak, total
    scale,
    units_a,
    units_b,
    share,  # tiles of the joined list per split; one is compiled apart, without a loop
    q_row, q_head, rope_row, rope_head,
    H: tl.constexpr,
    BH: tl.constexpr,
    C: tl.constexpr,
    WIDE: tl.constexpr,
    R: tl.constexpr,
    RP: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    FORMAT: tl.constexpr,
    SOURCES: tl.constexpr,
    SINKS: tl.constexpr,
    COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (H + BH - 1) // BH
    n = (tl.program_id(0) // blocks).to(tl.int64)
    split = tl.program_id(1)
    h = (tl.program_id(0) % blocks) * BH + tl.arange(0, BH)
    c, r = tl.arange(0, WIDE), tl.arange(0, RP)
    known = h < H
    q = tl.load(
        q_ptr + n * q_row + h[:, None] * q_head + c[None, :], mask=known[:, None] & (c < C)[None, :], other=0.0
    ).to(COMPUTE)
    q_rope = q
    if R > 0:
        q_rope = tl.load(
            q_rope_ptr + n * rope_row + h[:, None] * rope_head + r[None, :],
            mask=known[:, None] & (r < R)[None, :],
            other=0.0,
        ).to(COMPUTE)
    acc = tl.zeros([BH, WIDE], tl.float32)
    peak = tl.full([BH], -1e30, tl.float32)
    total = tl.zeros([BH], tl.float32)
    count_a, count_b = units_a * 16, units_b * 16
    ahead = tl.cdiv(count_a, BK) * BK
    end = ahead
    if SOURCES == 2:
        end += count_b
    lane = tl.arange(0, BK)
    for t in tl.range(split * share * BK, tl.minimum((split + 1) * share * BK, end), BK, num_stages=STAGES):
        place = t + lane
        slot = tl.load(slots_a + n * count_a + place, mask=place < count_a, other=-1).to(tl.int64)
        in_a = place < ahead
        if SOURCES == 2:
            other = (place >= ahead) & (place - ahead < count_b)
            slot = tl.where(
                in_a, slot, tl.load(slots_b + n * count_b + place - ahead, mask=other, other=-1).to(tl.int64)
            )
        real = slot >= 0
        x, y = _rows(
            _joined(latent_a, latent_b, in_a[:, None], SOURCES),
            _joined(rope_a, rope_b, in_a[:, None], SOURCES),
            _joined(scale_a, scale_b, in_a[:, None], SOURCES),
            tl.maximum(slot, 0), real, C, WIDE, R, RP, FORMAT, COMPUTE,
        )  # fmt: skip
        logits = tl.dot(q, tl.trans(x), input_precision=PRECISION)
        if R > 0:
            logits = tl.dot(q_rope, tl.trans(y), logits, input_precision=PRECISION)
        logits = tl.where(real[None, :], logits * scale, -1e30)
        higher = tl.maximum(peak, tl.max(logits, 1))
        fade = tl.exp2(peak - higher)
        weight = tl.where(real[None, :], tl.exp2(logits - higher[:, None]), 0.0)
        total = total * fade + tl.sum(weight, 1)
        peak = higher
        acc = tl.dot(weight.to(COMPUTE), x, acc * fade[:, None], input_precision=PRECISION)
    inside = known[:, None] & (c < C)[None, :]
    if SPLIT:
        row = (n * tl.num_programs(1) + split) * H + h
        tl.store(parts_ptr + row[:, None] * C + c[None, :], acc, mask=inside)
        tl.store(sums_ptr + row * 2, peak, mask=known)
        tl.store(sums_ptr + row * 2 + 1, total, mask=known)
    else:
        if SINKS:
            sink = tl.load(sinks_ptr + h, mask=known, other=0.0) * 1.4426950408889634
            higher = tl.maximum(peak, sink)
            fade = tl.exp2(peak - higher)
            total = total * fade + tl.exp2(sink - higher)
            acc = acc * fade[:, None]
        result = tl.where(total > 0.0, 1.0 / total, 0.0)[:, None] * acc
        tl.store(out_ptr + (n * H + h)[:, None] * C + c[None, :], result.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["splits"])
def _combine_kernel(
    parts_ptr,  # float32 [N, S, H, C]
    sums_ptr,  # float32 [N, S, H, 2]
    sinks_ptr,  # float32 [H]
    out_ptr,  # [N, H, C]
    splits,
    H: tl.constexpr,
    C: tl.constexpr,
    BC: tl.constexpr,
    BS: tl.constexpr,
    SINKS: tl.constexpr,
):
    """BC channels of one head; BS splits are loaded at a time."""
    n = (tl.program_id(0) // H).to(tl.int64)
    h = tl.program_id(0) % H
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    peak = tl.full((), -1e30, tl.float32)
    total = tl.full((), 0.0, tl.float32)
    mixed = tl.zeros([BC], tl.float32)
    for first in tl.range(0, splits, BS, num_stages=1):
        s = first + tl.arange(0, BS)
        known = s < splits
        row = (n * splits + s) * H + h
        parts = tl.load(parts_ptr + row[:, None] * C + c[None, :], mask=known[:, None] & (c < C)[None, :], other=0.0)
        peaks = tl.load(sums_ptr + row * 2, mask=known, other=-1e30)
        totals = tl.load(sums_ptr + row * 2 + 1, mask=known, other=0.0)
        higher = tl.maximum(peak, tl.max(peaks, 0))
        fade, weight = tl.exp2(peak - higher), tl.exp2(peaks - higher)
        total = total * fade + tl.sum(totals * weight, 0)
        mixed = mixed * fade + tl.sum(parts * weight[:, None], 0)
        peak = higher
    if SINKS:
        sink = tl.load(sinks_ptr + h) * 1.4426950408889634
        higher = tl.maximum(peak, sink)
        fade = tl.exp2(peak - higher)
        total = total * fade + tl.exp2(sink - higher)
        mixed = mixed * fade
    result = tl.where(total > 0.0, mixed / total, 0.0)
    tl.store(out_ptr + (n * H + h) * C + c, result.to(out_ptr.dtype.element_ty), mask=c < C)


class _Source(NamedTuple):
    latent: Tensor
    rope: Tensor
    scale: Tensor
    slots: Tensor
    listed: int
    format: int


def _source(rows: Rows) -> _Source:
    slots = rows.slots.contiguous()
    if slots.shape[1] % _UNIT:
        slots = F.pad(slots, (0, -slots.shape[1] % _UNIT), value=-1)
    latent = rows.latent
    assert latent.is_contiguous() and (rows.rope is None or rows.rope.is_contiguous())
    if latent.dtype != torch.uint8:
        rope = latent if rows.rope is None else rows.rope
        return _Source(latent, rope, latent, slots, slots.shape[1], 0)
    codes, half = latent.view(torch.float8_e4m3fn), latent.view(torch.bfloat16)
    scale = latent.view(torch.float32) if latent.shape[1] == 656 else latent
    return _Source(codes, half, scale, slots, slots.shape[1], latent.shape[1])


class Tiles(NamedTuple):
    """How a launch is cut: rows per tile, splits of the list, pipeline stages, warps."""

    rows: int
    splits: int
    stages: int
    warps: int


def tiles_for(programs: int, counts: list[int], wide: int, exact: bool, processors: int) -> Tiles:
    """Enough splits to occupy all processors; smaller tiles where even one split per tile would not."""
    rows = 64 if wide <= 512 and not exact else 32
    room = processors // programs
    if rows == 64 and sum(triton.cdiv(count, rows) for count in counts) < room:
        rows = 32
    tiles = sum(triton.cdiv(count, rows) for count in counts)
    return Tiles(rows, max(1, min(tiles, room)), 2, 8 if wide >= 256 else 4)


def sparse_attention(
    q_latent: Tensor,
    q_rope: Tensor | None,
    sources: tuple[Rows, ...],
    scale: float,
    sinks: Tensor | None,
    cut: Tiles | None = None,
) -> Tensor:
    """See the reference; one or two sources. Products in bfloat16 (float32 for float32 rows), sums in float32."""
    queries, heads, width = q_latent.shape
    assert len(sources) in (1, 2) and q_latent.stride(2) == 1
    parts = [_source(rows) for rows in sources]
    a, b = parts[0], parts[-1]
    assert a.format == b.format and a.latent.dtype == b.latent.dtype, "both sources must have one row format"
    packed = a.format > 0
    rope = 0 if q_rope is None else q_rope.shape[2]
    out = torch.empty(queries, heads, width, dtype=q_latent.dtype, device=q_latent.device)
    exact = interpreted() or (not packed and a.latent.dtype == torch.float32)
    wide = max(16, triton.next_power_of_2(width))
    block_heads = min(64, max(16, triton.next_power_of_2(heads)))
    if queries == 0:
        return out
    programs = queries * triton.cdiv(heads, block_heads)
    if cut is None:
        cut = tiles_for(programs, [s.listed for s in parts], wide, exact, multiprocessors(q_latent.device))
    tile, splits = cut.rows, cut.splits
    tiles = sum(triton.cdiv(s.listed, tile) for s in parts)
    share = triton.cdiv(tiles, splits) if tiles else 1
    splits = max(1, triton.cdiv(tiles, share))
    space = (queries, splits, heads, width) if splits > 1 else (1,)
    scratch = torch.empty(space, dtype=torch.float32, device=out.device)
    sums = torch.empty((*space[:3], 2), dtype=torch.float32, device=out.device)
    r = q_latent if q_rope is None else q_rope
    assert r.stride(2) == 1
    _attention_kernel[(programs, splits)](
        q_latent, r, a.latent, a.rope, a.scale, a.slots, b.latent, b.rope, b.scale, b.slots,
        q_latent if sinks is None else sinks, out, scratch, sums, scale * _LOG2_E, a.listed // _UNIT, b.listed // _UNIT, share,
        q_latent.stride(0), q_latent.stride(1), r.stride(0), r.stride(1),
        H=heads, BH=block_heads, C=width, WIDE=wide, R=rope, RP=max(16, triton.next_power_of_2(max(rope, 1))), BK=tile,
        SPLIT=splits > 1, FORMAT=a.format, SOURCES=len(sources), SINKS=sinks is not None,
        COMPUTE=tl.float32 if exact else tl.bfloat16, PRECISION="ieee" if exact else "tf32",
        STAGES=cut.stages, num_warps=cut.warps,
    )  # fmt: skip
    if splits > 1:
        block = min(wide, 128)
        _combine_kernel[(queries * heads, triton.cdiv(width, block))](
            scratch, sums, q_latent if sinks is None else sinks, out, splits, H=heads, C=width, BC=block,
            BS=16 if splits <= 16 else 64, SINKS=sinks is not None, num_warps=4,
        )  # fmt: skip
    return out
