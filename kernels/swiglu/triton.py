"""SwiGLU on a GPU in one pass, float32 inside. I columns of gate and as many of up, BLOCK of them per program."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case, Unsuitable
from kernels.gpu import require_gpu


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU; float64 keeps its precision in the reference."""
    require_gpu(case)
    if case is not None and case.dtype == torch.float64:
        raise Unsuitable("it computes in float32")


@triton.jit
def _swiglu_kernel(
    x_ptr,  # [N, 2I], rows `stride` apart
    out_ptr,  # [N, I]
    stride,
    limit,
    I: tl.constexpr,
    BLOCK: tl.constexpr,
    CLAMP: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < I
    gate = tl.load(x_ptr + n * stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + n * stride + I + column, mask=inside, other=0.0).to(tl.float32)
    if CLAMP:
        gate = tl.minimum(gate, limit, propagate_nan=tl.PropagateNan.ALL)
        up = tl.clamp(up, -limit, limit, propagate_nan=tl.PropagateNan.ALL)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + n * I + column, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate_up: Tensor, limit: float | None = None) -> Tensor:
    """See the reference."""
    width = gate_up.shape[-1] // 2
    rows = gate_up if gate_up.dim() == 2 else gate_up.reshape(-1, 2 * width)
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    out = torch.empty(*gate_up.shape[:-1], width, dtype=gate_up.dtype, device=gate_up.device)
    if out.numel():
        block = min(1024, triton.next_power_of_2(width))
        _swiglu_kernel[(len(rows), triton.cdiv(width, block))](
            rows, out, rows.stride(0), 0.0 if limit is None else limit, I=width, BLOCK=block, CLAMP=limit is not None,
            num_warps=4,
        )  # fmt: skip
    return out
