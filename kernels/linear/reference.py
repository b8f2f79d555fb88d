"""Dense matrix products; weights are widened to the activations' element type."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.formats import dequantize_fp8
from kernels.swiglu.reference import swiglu

FP8_BLOCKS = ((128, 128), (1, 32))  # rows and columns of a matrix that share a scale


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T; x [N, I], weight [O, I] -> [N, O] in the element type of x."""
    return F.linear(x, weight.to(x.dtype))


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor, limit: float | None) -> Tensor:
    """down swiglu(gate_up x); x [N, H], gate_up [2I, H] with the gate first, down [H, I] -> [N, H]; limit as in swiglu."""
    return linear(swiglu(linear(x, gate_up), limit), down)


def headwise_linear(x: Tensor, weight: Tensor) -> Tensor:
    """out[n, h] = x[n, h] weight[h]; x [N, H, I], weight [H, I, O] -> [N, H, O] in the element type of x."""
    return torch.bmm(x.transpose(0, 1), weight.to(x.dtype)).transpose(0, 1)


def fp8_block(codes: Tensor, scales: Tensor) -> tuple[int, int]:
    """Which of FP8_BLOCKS the scales of codes [O, I] belong to, partial blocks at the edges included."""
    rows, columns = codes.shape
    for block in FP8_BLOCKS:
        if scales.shape == (-(-rows // block[0]), -(-columns // block[1])):
            return block
    raise ValueError(f"scales {list(scales.shape)} fit no block of a matrix {list(codes.shape)}")


def linear_fp8(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """x weight^T with weight = e4m3 * scale of its block; returns [N, O] in the element type of x, sums in float32.

    x bfloat16 or float32 [N, I]; codes float8_e4m3fn [O, I]; scales float32, or e8m0 (also as uint8), one per block of
    128 x 128 or 1 x 32 (MXFP8): [ceil(O / rows), ceil(I / columns)]. Raises ValueError if they fit neither.
    """
    return linear(x, dequantize_fp8(codes, scales, fp8_block(codes, scales)))
