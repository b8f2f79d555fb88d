"""Dense matrix products; weights are widened to the activations' element type."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.swiglu.reference import swiglu


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x weight^T; x [N, I], weight [O, I] -> [N, O] in the element type of x."""
    return F.linear(x, weight.to(x.dtype))


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor, limit: float | None) -> Tensor:
    """down swiglu(gate_up x); x [N, H], gate_up [2I, H] with the gate first, down [H, I] -> [N, H]; limit as in swiglu."""
    return linear(swiglu(linear(x, gate_up), limit), down)


def headwise_linear(x: Tensor, weight: Tensor) -> Tensor:
    """out[n, h] = x[n, h] weight[h]; x [N, H, I], weight [H, I, O] -> [N, H, O] in the element type of x."""
    return torch.bmm(x.transpose(0, 1), weight.to(x.dtype)).transpose(0, 1)
