"""Dense products on a GPU. Those with bfloat16 and float32 weights are torch's own."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import require_gpu
from kernels.swiglu.triton import swiglu


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor, limit: float | None) -> Tensor:
    """See the reference."""
    return F.linear(swiglu(F.linear(x, gate_up.to(x.dtype)), limit), down.to(x.dtype))
