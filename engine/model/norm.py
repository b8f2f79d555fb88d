"""Norm layers with their weights."""

from __future__ import annotations

from torch import Tensor

from engine.model.weights import Weights
from kernels.norm import layer_norm, rms_norm


class RmsNorm:
    """RMS norm over the last dimension with a learned weight."""

    def __init__(self, weights: Weights, name: str, width: int, eps: float) -> None:
        self.weight, self.eps = weights.vector(name, width), eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class LayerNorm:
    """Layer norm over the last dimension with learned weight and bias."""

    def __init__(self, weights: Weights, name: str, width: int, eps: float) -> None:
        self.weight, self.bias = weights.vector(f"{name}.weight", width), weights.vector(f"{name}.bias", width)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)
