"""Experts in plain torch: y_n = sum_j weight[n, j] * down_e( swiglu(gate_up_e(x_n)) ), e = ids[n, j].

Sizes: N tokens, k experts per token, E experts, H hidden, I expert width. gate_up stacks the gate rows before the up rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.formats import dequantize_fp8, dequantize_mxfp4
from kernels.swiglu import swiglu

FP8_MAX = 448.0
_FP8_NAN = 0x7F
EXACT_SPAN = 14  # largest log2 ratio of two scales in one block that e4m3 still represents exactly
_HEADROOM = 6  # the largest scale of a block becomes 2^6 times the block scale: 6 * 2^6 = 384 <= 448


class MxFp4Matrix(NamedTuple):
    """Packed expert matrices: codes uint8 [E, rows, columns / 2], scale uint8 (e8m0) [E, rows, columns / 32]."""

    codes: Tensor
    scale: Tensor


@dataclass(frozen=True)
class PackedExpert:
    """One expert's matrices as they lie in memory: gate and up [I, H], down [H, I]; codes uint8 or int8, scale e8m0 bytes.

    All parts are contiguous; a CPU kernel reads them by address, so they must outlive their use.
    """

    gate: MxFp4Matrix
    up: MxFp4Matrix
    down: MxFp4Matrix

    @cached_property
    def pointers(self) -> tuple[int, ...]:
        """Addresses of codes and scale of gate, up and down."""
        parts = [part for matrix in (self.gate, self.up, self.down) for part in matrix]
        assert all(part.is_contiguous() for part in parts), "packed experts must be contiguous"
        return tuple(part.data_ptr() for part in parts)

    @cached_property
    def address_bytes(self) -> bytes:
        """`pointers` as the bytes of a C struct."""
        return struct.pack("6P", *self.pointers)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for matrix in (self.gate, self.up, self.down) for part in matrix)


ExpertSource = Callable[[int], PackedExpert]


class Fp8Matrix(NamedTuple):
    """Expert matrices in e4m3 [E, rows, columns] with e8m0 bytes per row and 128 columns: uint8 [E, rows, columns / 128]."""

    codes: Tensor
    scale: Tensor


def convert_mxfp4_to_fp8(source: MxFp4Matrix, codes: Tensor, scale: Tensor, block: int = 128) -> Tensor:
    """Write MXFP4 as e4m3 with one power-of-two scale per `block` columns into a workspace, exactly where possible.

    Block scale = largest group scale - 6 (in exponents), floor 0. Exact while the group scales of a block span at most
    2^14 (every e2m1 value times 2^-8..2^6 is an e4m3 number). A group whose scale byte is 255 becomes NaN and counts as
    exact. codes float8_e4m3fn [E, rows, columns] and scale uint8 [E, rows, columns / block] are written in place.
    Returns bool [E, rows, columns / block]: blocks that are NOT exact and must be multiplied from the packed source.
    """
    group_scale = source.scale.view(torch.uint8).to(torch.int32).unflatten(-1, (-1, block // 32))
    broken = group_scale == 255
    group_scale = group_scale.masked_fill(broken, 0)
    target = (group_scale.amax(-1) - _HEADROOM).clamp(min=0)
    shift = (group_scale - target.unsqueeze(-1)).clamp(min=-64)  # lost either way; must not vanish in float32 too
    one = torch.full_like(source.scale.view(torch.uint8), 127)
    unit = dequantize_mxfp4(source.codes, one).unflatten(-1, (-1, block // 32, 32))
    scaled = torch.ldexp(unit, shift.unsqueeze(-1)).masked_fill(broken.unsqueeze(-1), 0.0)
    rounded = scaled.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    bits = rounded.view(torch.uint8).masked_fill(broken.unsqueeze(-1), _FP8_NAN)
    codes.view(torch.uint8).copy_(bits.flatten(-3))
    scale.copy_(target.to(torch.uint8))
    return (rounded.float() != scaled).flatten(-2).any(-1)


def grouped_experts(
    x: Tensor, ids: Tensor, weights: Tensor, limit: float | None, expert: Callable[[int], tuple[Tensor, Tensor]]
) -> Tensor:
    """Loop over the experts in use; `expert(e)` gives its matrices gate_up [2I, H] and down [H, I] in x's dtype.

    x [N, H]; ids int64 [N, k]; weights float32 [N, k]; limit: see `swiglu`. Returns [N, H].
    """
    if ids.shape[0] == 1:
        mixed: Tensor | None = None
        for e, weight in zip(ids[0].tolist(), weights[0].to(x.dtype).unbind(), strict=True):
            gate_up, down = expert(e)
            part = F.linear(swiglu(F.linear(x, gate_up), limit) * weight, down)
            mixed = part if mixed is None else mixed.add_(part)
        assert mixed is not None
        return mixed
    # One row per token and choice, summed at the end: scattered adds are slow and their order would depend on the batch.
    parts = x.new_empty(ids.numel(), x.shape[1])
    order = ids.flatten().argsort(stable=True)
    counts = ids.flatten().bincount().tolist()
    for e, slots in enumerate(order.split(counts)):
        if len(slots) == 0:
            continue
        rows = slots // ids.shape[1]
        gate_up, down = expert(e)
        hidden = swiglu(F.linear(x[rows], gate_up), limit) * weights.flatten()[slots].unsqueeze(1).to(x.dtype)
        parts.index_copy_(0, slots, F.linear(hidden, down))
    return parts.unflatten(0, ids.shape).sum(1)


def dense_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, limit: float | None
) -> Tensor:
    """From decoded weights: x [N, H], ids int64 [N, k], weights float32 [N, k], gate_up [E, 2I, H], down [E, H, I] -> [N, H]."""
    return grouped_experts(x, ids, weights, limit, lambda e: (gate_up[e], down[e]))


def mxfp4_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: MxFp4Matrix, down: MxFp4Matrix, limit: float | None
) -> Tensor:
    """From packed MXFP4, decoded expert by expert in x's dtype; shapes as `dense_experts`."""

    def decoded(matrix: MxFp4Matrix, e: int) -> Tensor:
        return dequantize_mxfp4(matrix.codes[e], matrix.scale[e]).to(x.dtype)

    return grouped_experts(x, ids, weights, limit, lambda e: (decoded(gate_up, e), decoded(down, e)))


def packed_experts(x: Tensor, ids: Tensor, weights: Tensor, expert: ExpertSource, limit: float | None) -> Tensor:
    """From experts packed one by one (`expert(e)` gives expert e), decoded as they are used; shapes as `dense_experts`."""

    def decoded(matrix: MxFp4Matrix) -> Tensor:
        return dequantize_mxfp4(matrix.codes, matrix.scale).to(x.dtype)

    def matrices(e: int) -> tuple[Tensor, Tensor]:
        part = expert(e)
        return torch.cat([decoded(part.gate), decoded(part.up)]), decoded(part.down)

    return grouped_experts(x, ids, weights, limit, matrices)


def fp8_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Fp8Matrix, down: Fp8Matrix, limit: float | None
) -> Tensor:
    """From an FP8 workspace with e8m0 block scales (see `convert_mxfp4_to_fp8`); shapes as `dense_experts`."""

    def decoded(matrix: Fp8Matrix, e: int) -> Tensor:
        block = matrix.codes.shape[-1] // matrix.scale.shape[-1]
        return dequantize_fp8(matrix.codes[e], matrix.scale[e], (1, block)).to(x.dtype)

    return grouped_experts(x, ids, weights, limit, lambda e: (decoded(gate_up, e), decoded(down, e)))
