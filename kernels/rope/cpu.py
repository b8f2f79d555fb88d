"""Interleaved rotation on the CPU by the C code in cpu.c: strided input, one call instead of torch's five."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.rope import reference

_SOURCE = Path(__file__).with_name("cpu.c")


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE)
    p, n = ctypes.c_void_p, ctypes.c_int64
    code.rotate_interleaved.argtypes = [p, p, p, n, n, n, n, n, ctypes.c_int]
    code.rotate_interleaved.restype = None
    random = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 20, generator=random)[:, 1:4, 2:16]
    angles = torch.randn(3, 7, generator=random)
    rotation = torch.polar(torch.ones_like(angles), angles)
    expected = reference.rotate_interleaved(x, rotation)
    if not (_rotate(code, x, rotation) - expected).norm() < 1e-6 * expected.norm():
        raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """float32 channels on the CPU, pairs side by side."""
    if case is not None and (case.device != "cpu" or case.dtype != torch.float32):
        raise Unsuitable("it is for float32 channels on the CPU")
    _library()


def rotate_interleaved(x: Tensor, rotation: Tensor) -> Tensor:
    """See the reference."""
    return _rotate(_library(), x if x.stride(2) == 1 else x.contiguous(), rotation)


def _rotate(code: ctypes.CDLL, x: Tensor, rotation: Tensor) -> Tensor:
    tokens, heads, width = x.shape
    out = x.new_empty(tokens, heads, width)
    turn = torch.view_as_real(rotation.resolve_conj()).contiguous()
    code.rotate_interleaved(
        x.data_ptr(), turn.data_ptr(), out.data_ptr(), tokens, heads, width, x.stride(0), x.stride(1),
        native.threads(6 * out.numel()),
    )  # fmt: skip
    return out
