"""Rotation of channel pairs by position-dependent angles. The caller computes the angles (see engine/model/rope.py)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate_interleaved(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate pairs (2i, 2i+1): GPT-J style. x [N, heads, D]; rotation complex64 [N, D/2] = cos + i sin. Same shape out.

    The inverse rotation is the same call with the conjugate.
    """
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation.unsqueeze(1)).flatten(-2).to(x.dtype)


def rotate_half_split(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate pairs (i, i + D/2): NeoX style. x [N, heads, D]; rotation complex64 [N, D/2]. Same shape out."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = rotation.real.unsqueeze(1), rotation.imag.unsqueeze(1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
