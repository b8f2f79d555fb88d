"""Root-mean-square norm on the CPU by the C code in cpu.c: one call instead of torch's five operations."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.norm import reference

_SOURCE = Path(__file__).with_name("cpu.c")


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE)
    p, n = ctypes.c_void_p, ctypes.c_int64
    code.rms_norm.argtypes = [p, p, p, n, n, ctypes.c_float, ctypes.c_int]
    code.add_rms_norm.argtypes = [p, p, p, p, p, n, n, ctypes.c_float, ctypes.c_int]
    code.rms_norm.restype = code.add_rms_norm.restype = None
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(3, 37, generator=random), torch.randn(37, generator=random)
    pairs = [(_norm(code, x, weight, 1e-3), reference.rms_norm(x, weight, 1e-3))]
    pairs += zip(_add_norm(code, x, x, weight, 1e-3), reference.add_rms_norm(x, x, weight, 1e-3), strict=True)
    if not all((a - b).norm() < 1e-6 * b.norm() for a, b in pairs):
        raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """float32 rows on the CPU."""
    if case is not None and (case.device != "cpu" or case.dtype != torch.float32):
        raise Unsuitable("it is for float32 rows on the CPU")
    _library()


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """See the reference."""
    return _norm(_library(), x.contiguous(), weight, eps)


def add_rms_norm(x: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See the reference."""
    return _add_norm(_library(), x.contiguous(), update.contiguous(), weight, eps)


def _norm(code: ctypes.CDLL, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    out, width = torch.empty_like(x), x.shape[-1]
    rows = x.numel() // max(width, 1)
    code.rms_norm(
        x.data_ptr(), None if weight is None else weight.data_ptr(), out.data_ptr(), rows, width, eps,
        native.threads(4 * x.numel()),
    )  # fmt: skip
    return out


def _add_norm(code: ctypes.CDLL, x: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total, out = torch.empty_like(x), torch.empty_like(x)
    code.add_rms_norm(
        x.data_ptr(), update.data_ptr(), weight.data_ptr(), total.data_ptr(), out.data_ptr(), *x.shape, eps,
        native.threads(5 * x.numel()),
    )  # fmt: skip
    return total, out
