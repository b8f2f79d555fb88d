"""Experts on a GPU: MXFP4 to FP8 conversion, and multiplication of few tokens straight from packed MXFP4.

Sizes: P (token, expert) pairs, k experts per token, H hidden, I expert width, KG groups of 32 columns in a row,
B blocks of 128 columns. A group's codes are four 32-bit words; word bits 4i .. 4i+3 are column i of eight.

Few tokens: activations are kept as fp16 pairs (column i, column i + 4) of each word's eight columns, in four planes
i = 0 .. 3, so that one shift and one mask turn a word into two fp16 weights at a time. Weights appear as value * 2^-14
(the bits of e2m1 in fp16's exponent field); the powers of two are put right in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case, Unsuitable
from kernels.experts.grouped import fp8_experts
from kernels.experts.reference import MxFp4Matrix
from kernels.gpu import interpreted, require_gpu

__all__ = ["convert_mxfp4_to_fp8", "fp8_experts", "mxfp4_experts", "suits"]

_CONVERT_BLOCKS = 64  # blocks of 128 columns per program
_HIDDEN_SHIFT = -4  # the intermediate activations are kept as fp16 times 2^-4: up to 10^6, and exact enough below 10^-3


def suits(name: str, case: Case | None) -> None:
    """The kernels need a Hopper GPU; the fused multiplication is for few tokens."""
    require_gpu(case)
    if name == "mxfp4_experts" and case is not None and case.shape != "few tokens":
        raise Unsuitable("it is for few tokens")


# ---- conversion -----------------------------------------------------------------------------------------------------


@triton.jit
def _decode_word(w, low, high, ASM: tl.constexpr):
    """Eight e2m1 codes to eight bytes: `low` and `high` hold the bytes of magnitudes 0-3 and 4-7; the sign is bit 7."""
    if ASM:
        first, second = tl.inline_asm_elementwise(
            """{
            .reg .b32 m, n, s, t, x, y;
            and.b32 m, $2, 0x77777777;
            shr.u32 n, m, 16;
            prmt.b32 x, $3, $4, m;
            prmt.b32 y, $3, $4, n;
            shr.u32 s, $2, 3;
            and.b32 s, s, 0x11111111;
            prmt.b32 t, 0x00008000, 0, s;
            or.b32 $0, x, t;
            shr.u32 s, s, 16;
            prmt.b32 t, 0x00008000, 0, s;
            or.b32 $1, y, t;
            }""",
            "=r,=r,r,r,r",
            [w, low, high],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
        return (second.to(tl.int64) << 32) | (first.to(tl.int64) & 0xFFFFFFFF)
    table = (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
    out = tl.zeros(w.shape, tl.int64)
    for i in tl.static_range(8):
        code = (w >> (4 * i)).to(tl.int64)
        byte = ((table >> ((code & 7) * 8)) & 0x7F) | ((code & 8) << 4)
        out = out | (byte << (8 * i))
    return out


@triton.jit
def _convert_kernel(
    codes_ptr,  # int32 [B, 4, 4], packed words by block, group, word
    scale_ptr,  # uint8 [B, 4]
    out_ptr,  # int64 [B, 4, 4], eight e4m3 bytes each
    out_scale_ptr,  # uint8 [B]
    wide_ptr,  # uint8 [B], 1 where a value of the block was rounded
    B,
    BLOCKS: tl.constexpr,
    ASM: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * BLOCKS
    block = tl.arange(0, BLOCKS)
    group = tl.arange(0, BLOCKS * 4)
    inside = first + block < B
    inside_group = first + group // 4 < B
    s = tl.load(scale_ptr + first * 4 + group, mask=inside_group, other=0).to(tl.int32)
    broken = s == 255
    s4 = tl.reshape(tl.where(broken, 0, s), [BLOCKS, 4])
    target = tl.maximum(tl.max(s4, 1) - 6, 0)
    tl.store(out_scale_ptr + first + block, target.to(tl.uint8), mask=inside)
    d = tl.reshape(s4 - target[:, None], [BLOCKS * 4])
    # Bytes of the magnitudes 0 .5 1 1.5 | 2 3 4 6 times 2^d; below -8 they are rounded to even, as torch does.
    low = 0x3C383000 + d * 0x08080800
    high = 0x4C484440 + d * 0x08080808
    low = tl.where(d == -6, 0x0C080400, low)
    low = tl.where(d == -7, 0x06040200, low)
    low = tl.where(d == -8, 0x03020100, low)
    high = tl.where(d == -8, 0x0C080604, high)
    if tl.min(d, 0) < -8:
        low = tl.where(d == -9, 0x02010000, tl.where(d == -10, 0x01000000, tl.where(d < -10, 0, low)))
        high = tl.where(d == -9, 0x06040302, tl.where(d == -10, 0x03020201, high))
        high = tl.where(d == -11, 0x02010100, tl.where(d == -12, 0x01000000, tl.where(d < -12, 0, high)))
    at = (first * 16 + group[:, None] * 4) + tl.arange(0, 4)[None, :]
    w = tl.load(codes_ptr + at, mask=inside_group[:, None], other=0)
    low2, w = tl.broadcast(low[:, None], w)
    high2, w = tl.broadcast(high[:, None], w)
    out = _decode_word(w, low2, high2, ASM)
    out = tl.where(broken[:, None], 0x7F7F7F7F7F7F7F7F, out)
    tl.store(out_ptr + at, out, mask=inside_group[:, None])
    if tl.min(d, 0) < -8:
        # Bit m of `lost`: magnitude code m is no multiple of e4m3's smallest number at this shift.
        lost = tl.where(d == -9, 0b1010, tl.where(d == -10, 0b101110, tl.where(d == -11, 0b10111110, 0b11111110)))
        lost = tl.where((d < -8) & (broken == 0), lost, 0)[:, None]
        rounded = tl.zeros([BLOCKS * 4, 4], tl.int32)
        for i in tl.static_range(8):
            rounded = rounded | (lost >> ((w >> (4 * i)) & 7))
        wide = tl.max(tl.reshape(tl.max(rounded & 1, 1), [BLOCKS, 4]), 1)
        tl.store(wide_ptr + first + block, wide.to(tl.uint8), mask=inside)
    else:
        tl.store(wide_ptr + first + block, tl.zeros([BLOCKS], tl.uint8), mask=inside)


def convert_mxfp4_to_fp8(source: MxFp4Matrix, codes: Tensor, scale: Tensor, block: int = 128) -> Tensor:
    """See the reference; all tensors contiguous, block 128."""
    assert block == 128 and source.codes.is_contiguous() and codes.is_contiguous() and scale.is_contiguous()
    blocks = scale.numel()
    wide = torch.empty(scale.shape, dtype=torch.uint8, device=scale.device)
    _convert_kernel[(triton.cdiv(blocks, _CONVERT_BLOCKS),)](
        source.codes.view(torch.int32),
        source.scale.view(torch.uint8),
        codes.view(torch.int64),
        scale,
        wide,
        blocks,
        BLOCKS=_CONVERT_BLOCKS,
        ASM=not interpreted(),
        num_warps=4,
    )
    return wide.view(torch.bool)


# ---- few tokens -----------------------------------------------------------------------------------------------------


@triton.jit
def _power(byte):
    """float32 2^(byte - 127) of e8m0 bytes held in int32; 0 gives 2^-127, 255 gives NaN."""
    bits = tl.where(byte == 0, 0x400000, byte << 23)
    return tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def _word_dot(w, x_ptr, at, PLANE: tl.constexpr, LIFT: tl.constexpr, ASM: tl.constexpr):
    """For each word the sum of its eight weights (times 2^-14, or exact with LIFT) times the activations at `at`.

    x_ptr: fp16 pairs as int32, planes PLANE words apart. LIFT multiplies weights by 2^14 first, for small activations.
    """
    x0, x1 = tl.load(x_ptr + at), tl.load(x_ptr + PLANE + at)
    x2, x3 = tl.load(x_ptr + 2 * PLANE + at), tl.load(x_ptr + 3 * PLANE + at)
    if ASM:
        w, x0 = tl.broadcast(w, x0)
        w, x1 = tl.broadcast(w, x1)
        w, x2 = tl.broadcast(w, x2)
        w, x3 = tl.broadcast(w, x3)
        if LIFT:
            return tl.inline_asm_elementwise(
                """{
                .reg .b32 a, b, t, c, u;
                .reg .b16 l, h;
                .reg .f32 f, g;
                mov.b32 u, 0x74007400;
                shl.b32 a, $1, 9;
                shl.b32 b, $1, 12;
                and.b32 b, b, 0x80008000;
                lop3.b32 t, a, 0x0E000E00, b, 0xEA;
                mul.rn.f16x2 t, t, u;
                mul.rn.f16x2 c, t, $2;
                shl.b32 a, $1, 5;
                shl.b32 b, $1, 8;
                and.b32 b, b, 0x80008000;
                lop3.b32 t, a, 0x0E000E00, b, 0xEA;
                mul.rn.f16x2 t, t, u;
                fma.rn.f16x2 c, t, $3, c;
                shl.b32 a, $1, 1;
                shl.b32 b, $1, 4;
                and.b32 b, b, 0x80008000;
                lop3.b32 t, a, 0x0E000E00, b, 0xEA;
                mul.rn.f16x2 t, t, u;
                fma.rn.f16x2 c, t, $4, c;
                shr.u32 a, $1, 3;
                and.b32 b, $1, 0x80008000;
                lop3.b32 t, a, 0x0E000E00, b, 0xEA;
                mul.rn.f16x2 t, t, u;
                fma.rn.f16x2 c, t, $5, c;
                mov.b32 {l, h}, c;
                cvt.f32.f16 f, l;
                cvt.f32.f16 g, h;
                add.f32 $0, f, g;
                }""",
                "=f,r,r,r,r,r",
                [w, x0, x1, x2, x3],
                dtype=tl.float32,
                is_pure=True,
                pack=1,
            )
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, t, c;
            .reg .b16 l, h;
            .reg .f32 f, g;
            shl.b32 a, $1, 9;
            shl.b32 b, $1, 12;
            and.b32 b, b, 0x80008000;
            lop3.b32 t, a, 0x0E000E00, b, 0xEA;
            mul.rn.f16x2 c, t, $2;
            shl.b32 a, $1, 5;
            shl.b32 b, $1, 8;
            and.b32 b, b, 0x80008000;
            lop3.b32 t, a, 0x0E000E00, b, 0xEA;
            fma.rn.f16x2 c, t, $3, c;
            shl.b32 a, $1, 1;
            shl.b32 b, $1, 4;
            and.b32 b, b, 0x80008000;
            lop3.b32 t, a, 0x0E000E00, b, 0xEA;
            fma.rn.f16x2 c, t, $4, c;
            shr.u32 a, $1, 3;
            and.b32 b, $1, 0x80008000;
            lop3.b32 t, a, 0x0E000E00, b, 0xEA;
            fma.rn.f16x2 c, t, $5, c;
            mov.b32 {l, h}, c;
            cvt.f32.f16 f, l;
            cvt.f32.f16 g, h;
            add.f32 $0, f, g;
            }""",
            "=f,r,r,r,r,r",
            [w, x0, x1, x2, x3],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    total = tl.zeros(w.shape, tl.float32)
    for i in tl.static_range(4):
        x = x0 if i == 0 else (x1 if i == 1 else (x2 if i == 2 else x3))
        early = (x & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        late = ((x >> 16) & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        total += _e2m1(w >> (4 * i)) * early + _e2m1(w >> (4 * i + 16)) * late
    return total if LIFT else total * (2.0**-14)


@triton.jit
def _e2m1(code):
    """float32 value of the e2m1 code in the low four bits."""
    bits = ((code & 7) << 22) | ((code & 8) << 28)
    return bits.to(tl.float32, bitcast=True) * (2.0**126)


@triton.jit
def _prepare_kernel(
    x_ptr,  # [N, H]
    pairs_ptr,  # fp16 [N, 4, H / 8, 2]
    unit_ptr,  # float32 [N], what the products of fp16 activation and weight * 2^-14 must be multiplied with
    H: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Bring the largest activation of a token near 2^15 by a power of two, round to fp16, sort into pairs."""
    n = tl.program_id(0)
    column = tl.arange(0, PADDED)
    x = tl.load(x_ptr + n.to(tl.int64) * H + column, mask=column < H, other=0.0).to(tl.float32)
    exponent = (tl.max(tl.abs(x), 0).to(tl.int32, bitcast=True) >> 23) - 127
    exponent = tl.minimum(tl.maximum(exponent, -100), 100)
    up = ((14 - exponent + 127) << 23).to(tl.float32, bitcast=True)
    place = ((column % 4) * (H // 8) + column // 8) * 2 + (column % 8) // 4
    tl.store(pairs_ptr + n * H + place, (x * up).to(tl.float16), mask=column < H)
    tl.store(unit_ptr + n, ((exponent + 127) << 23).to(tl.float32, bitcast=True))


@triton.jit
def _gate_up_kernel(
    pairs_ptr,  # int32 [N, 4, H / 8]
    unit_ptr,  # float32 [N]
    codes_ptr,  # int32 [E, 2I, H / 8]
    scale_ptr,  # uint8 [E, 2I, H / 32]
    ids_ptr,  # int64 [P]
    hidden_ptr,  # fp16 [P, 4, I / 8, 2]
    limit,
    SLOTS: tl.constexpr,
    I: tl.constexpr,
    KG: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    CLAMP: tl.constexpr,
    SHIFT: tl.constexpr,
    ASM: tl.constexpr,
):
    """hidden[pair, r] = swiglu of a gate row and an up row, for ROWS values of r."""
    pid = tl.program_id(0)
    pair = pid // (I // ROWS)
    r = (pid % (I // ROWS)) * ROWS + tl.arange(0, ROWS)
    n = pair // SLOTS
    e = tl.load(ids_ptr + pair).to(tl.int64)
    group, word = tl.arange(0, TILE), tl.arange(0, 4)
    gate_row = (e * (2 * I) + r) * KG
    up_row = gate_row + I * KG
    gate = tl.zeros([ROWS, TILE], tl.float32)
    up = tl.zeros([ROWS, TILE], tl.float32)
    for t in tl.static_range(0, KG, TILE):
        g = t + group
        inside = (g < KG)[None, :, None] & (word >= 0)[None, None, :]
        at = g[None, :, None] * 4 + word[None, None, :]
        x = pairs_ptr + n * (KG * 16)
        if KG % TILE == 0:
            wg = tl.load(codes_ptr + gate_row[:, None, None] * 4 + at)
            wu = tl.load(codes_ptr + up_row[:, None, None] * 4 + at)
            sg = tl.load(scale_ptr + gate_row[:, None] + g[None, :]).to(tl.int32)
            su = tl.load(scale_ptr + up_row[:, None] + g[None, :]).to(tl.int32)
            safe = at
        else:
            wg = tl.load(codes_ptr + gate_row[:, None, None] * 4 + at, mask=inside, other=0)
            wu = tl.load(codes_ptr + up_row[:, None, None] * 4 + at, mask=inside, other=0)
            sg = tl.load(scale_ptr + gate_row[:, None] + g[None, :], mask=(g < KG)[None, :], other=0).to(tl.int32)
            su = tl.load(scale_ptr + up_row[:, None] + g[None, :], mask=(g < KG)[None, :], other=0).to(tl.int32)
            safe = tl.where(inside, at, 0)
        gate += tl.sum(_word_dot(wg, x, safe, KG * 4, False, ASM), 2) * _power(sg)
        up += tl.sum(_word_dot(wu, x, safe, KG * 4, False, ASM), 2) * _power(su)
    unit = tl.load(unit_ptr + n)
    a, b = tl.sum(gate, 1) * unit, tl.sum(up, 1) * unit
    if CLAMP:
        a = tl.minimum(a, limit)
        b = tl.minimum(tl.maximum(b, -limit), limit)
    h = a / (1.0 + tl.exp(-a)) * b * (2.0**SHIFT)
    h = tl.minimum(tl.maximum(h, -65504.0), 65504.0)
    place = ((r % 4) * (I // 8) + r // 8) * 2 + (r % 8) // 4
    tl.store(hidden_ptr + pair * I + place, h.to(tl.float16))


@triton.jit
def _down_kernel(
    hidden_ptr,  # int32 [P, 4, I / 8]
    codes_ptr,  # int32 [E, H, I / 8]
    scale_ptr,  # uint8 [E, H, I / 32]
    ids_ptr,  # int64 [P]
    weights_ptr,  # float32 [P]
    out_ptr,  # [N, H]
    SLOTS: tl.constexpr,
    H: tl.constexpr,
    KG: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    SHIFT: tl.constexpr,
    STAGES: tl.constexpr,
    ASM: tl.constexpr,
):
    """out[n, r] = sum over the token's experts of weight * row r of down times hidden."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1)
    group, word = tl.arange(0, PADDED), tl.arange(0, 4)
    inside = group < KG
    x_at = tl.where(inside, group, 0)[None, :, None] * 4 + word[None, None, :]
    acc = tl.zeros([ROWS, PADDED], tl.float32)
    for j in tl.range(SLOTS, num_stages=STAGES):
        pair = n * SLOTS + j
        e = tl.load(ids_ptr + pair).to(tl.int64)
        share = tl.load(weights_ptr + pair)
        at = (e * H + r)[:, None] * KG + group[None, :]
        if KG == PADDED:
            w = tl.load(codes_ptr + at[:, :, None] * 4 + word[None, None, :])
            s = tl.load(scale_ptr + at).to(tl.int32)
        else:
            w = tl.load(codes_ptr + at[:, :, None] * 4 + word[None, None, :], mask=inside[None, :, None], other=0)
            s = tl.load(scale_ptr + at, mask=inside[None, :], other=0).to(tl.int32)
        part = tl.sum(_word_dot(w, hidden_ptr + pair * (KG * 16), x_at, KG * 4, True, ASM), 2)
        acc += part * (_power(s) * share)
    tl.store(out_ptr + n.to(tl.int64) * H + r, (tl.sum(acc, 1) * (2.0**-SHIFT)).to(out_ptr.dtype.element_ty))


def mxfp4_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: MxFp4Matrix, down: MxFp4Matrix, limit: float | None
) -> Tensor:
    """See the reference, for few tokens; contiguous matrices. Activations are rounded to fp16, sums are float32."""
    (tokens, hidden), slots, width = x.shape, ids.shape[1], down.codes.shape[2] * 2
    assert hidden % 32 == 0 and width % 32 == 0
    x, ids, weights = x.contiguous(), ids.contiguous(), weights.float().contiguous()
    pairs = torch.empty(tokens, hidden, dtype=torch.float16, device=x.device)
    inner = torch.empty(tokens * slots, width, dtype=torch.float16, device=x.device)
    unit = torch.empty(tokens, dtype=torch.float32, device=x.device)
    out = torch.empty_like(x)
    asm = not interpreted()
    if tokens == 0:
        return out
    _prepare_kernel[(tokens,)](x, pairs, unit, H=hidden, PADDED=triton.next_power_of_2(hidden), num_warps=4)
    groups = hidden // 32
    tall = 1 if asm else 32
    _gate_up_kernel[(tokens * slots * width // tall,)](
        pairs.view(torch.int32),
        unit,
        gate_up.codes.view(torch.int32),
        gate_up.scale.view(torch.uint8),
        ids,
        inner,
        0.0 if limit is None else limit,
        SLOTS=slots,
        I=width,
        KG=groups,
        ROWS=tall,
        TILE=min(32, triton.next_power_of_2(groups)),
        CLAMP=limit is not None,
        SHIFT=_HIDDEN_SHIFT,
        ASM=asm,
        num_warps=1,
    )
    rows = 2 if asm else 32
    _down_kernel[(hidden // rows, tokens)](
        inner.view(torch.int32),
        down.codes.view(torch.int32),
        down.scale.view(torch.uint8),
        ids,
        weights,
        out,
        SLOTS=slots,
        H=hidden,
        KG=width // 32,
        PADDED=triton.next_power_of_2(width // 32),
        ROWS=rows,
        SHIFT=_HIDDEN_SHIFT,
        STAGES=3,
        ASM=asm,
        num_warps=1,
    )
    return out
