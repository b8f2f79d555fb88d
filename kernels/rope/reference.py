"""Rotation of channel pairs by position-dependent angles. The caller computes the angles (see engine/model/rope.py).

R = 2 * rotation.shape[1] channels are rotated, those from `first` on; all others are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotate_interleaved(x: Tensor, rotation: Tensor, first: int = 0) -> Tensor:
    """Rotate pairs (2i, 2i+1): GPT-J style. x [N, heads, D]; rotation complex64 [N, R/2] = cos + i sin. Same shape out.

    The inverse rotation is the same call with the conjugate.
    """
    a, b = _rotated(x, rotation, first).unflatten(-1, (-1, 2)).unbind(-1)
    return _among_kept(x, first, torch.stack(_turned(a, b, rotation), dim=-1).flatten(-2))


def rotate_half_split(x: Tensor, rotation: Tensor, first: int = 0) -> Tensor:
    """Rotate pairs (i, i + R/2): NeoX style. x [N, heads, D]; rotation complex64 [N, R/2]. Same shape out."""
    a, b = _rotated(x, rotation, first).chunk(2, dim=-1)
    return _among_kept(x, first, torch.cat(_turned(a, b, rotation), dim=-1))


def _turned(a: Tensor, b: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = rotation.real.unsqueeze(1), rotation.imag.unsqueeze(1)
    return a * cos - b * sin, b * cos + a * sin


def _rotated(x: Tensor, rotation: Tensor, first: int) -> Tensor:
    """The channels to rotate, float32."""
    return x[..., first : first + 2 * rotation.shape[1]].float()


def _among_kept(x: Tensor, first: int, turned: Tensor) -> Tensor:
    """x with `turned` in the place of its channels from `first` on."""
    return torch.cat([x[..., :first], turned.to(x.dtype), x[..., first + turned.shape[-1] :]], dim=-1)
