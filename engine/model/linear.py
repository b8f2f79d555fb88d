"""Dense matrix products with their weights."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.weights import Weights
from kernels.linear import linear


class Linear:
    """x [N, in] -> [N, out], without a bias."""

    def __init__(self, weights: Weights, name: str, outputs: int, inputs: int) -> None:
        self.weight = weights.linear(name, outputs, inputs)

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight)


class FusedLinear:
    """Several projections of the same input as one matrix: one pass over the input, one kernel launch.

    Calling it with x [N, in] returns one [N, out] view per named part, in the given order.
    """

    def __init__(self, weights: Weights, inputs: int, **outputs: int) -> None:
        parts = [weights.linear(name, size, inputs) for name, size in outputs.items()]
        self.weight = torch.cat(parts) if len(parts) > 1 else parts[0]
        self.sizes = list(outputs.values())

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.split_with_sizes(linear(x, self.weight), self.sizes, dim=-1)
