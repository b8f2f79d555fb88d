"""Norms on a GPU, one row per program, float32 inside. D is the row's width."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import require_gpu


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _norm_kernel(
    x_ptr,  # [N, D], row stride given
    update_ptr,  # [N, D], read if ADD
    sum_ptr,  # [N, D], x + update is written if ADD
    weight_ptr,  # float32 [D]
    bias_ptr,  # float32 [D]
    out_ptr,  # [N, D]
    stride,
    eps,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    WEIGHT: tl.constexpr,
    CENTRED: tl.constexpr,
    ADD: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, PADDED)
    inside = column < D
    x = tl.load(x_ptr + n * stride + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total = x + tl.load(update_ptr + n * D + column, mask=inside, other=0.0).to(tl.float32)
        total = total.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + n * D + column, total, mask=inside)
        x = total.to(tl.float32)
    if CENTRED:
        x = tl.where(inside, x - tl.sum(x, 0) / D, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / D + eps)
    if WEIGHT:
        y = y * tl.load(weight_ptr + column, mask=inside, other=0.0)
    if CENTRED:
        y = y + tl.load(bias_ptr + column, mask=inside, other=0.0)
    tl.store(out_ptr + n * D + column, y.to(out_ptr.dtype.element_ty), mask=inside)


def _norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, update: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """x + update (x without one), and its norm."""
    width = x.shape[-1]
    rows = x.reshape(-1, width) if x.dim() != 2 else x
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    total = rows if update is None else torch.empty_like(out)
    if len(rows):
        padded = triton.next_power_of_2(width)
        _norm_kernel[(len(rows),)](
            rows, rows if update is None else update.contiguous(), total, rows if weight is None else weight,
            rows if bias is None else bias, out, rows.stride(0), eps, D=width, PADDED=padded,
            WEIGHT=weight is not None, CENTRED=bias is not None, ADD=update is not None,
            num_warps=min(8, max(1, padded // 512)),
        )  # fmt: skip
    return total, out.view(x.shape)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """See the reference."""
    return _norm(x, weight, None, eps)[1]


def add_rms_norm(x: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See the reference."""
    return _norm(x, weight, None, eps, update)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """See the reference."""
    return _norm(x, weight, bias, eps)[1]
