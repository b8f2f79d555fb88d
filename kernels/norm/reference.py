"""Norms over the last dimension, evaluated in float32, result in the input's dtype."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """weight * x / sqrt(mean(x^2) + eps); x [..., D], weight float32 [D] or None for a weightless norm."""
    return F.rms_norm(x.float(), x.shape[-1:], weight, eps).to(x.dtype)


def add_rms_norm(x: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Residual addition and the next block's norm: x + update, and the RMS norm of that; x, update [N, D], weight float32 [D]."""
    total = x + update
    return total, rms_norm(total, weight, eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """weight * (x - mean(x)) / sqrt(var(x) + eps) + bias; x [..., D], weight and bias float32 [D]."""
    return F.layer_norm(x.float(), x.shape[-1:], weight, bias, eps).to(x.dtype)
