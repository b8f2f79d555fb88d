"""SwiGLU with optional clamping."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def swiglu(gate_up: Tensor, limit: float | None = None) -> Tensor:
    """silu(min(g, L)) * clip(u, -L, L); gate_up [..., 2I] with the gate first, returns [..., I]. limit None: no clamp."""
    gate, up = gate_up.chunk(2, dim=-1)
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return F.silu(gate) * up
