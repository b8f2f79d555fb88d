"""Rotation on the CPU by the C code in cpu.c: strided input, one call instead of torch's five."""

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
    code.rotate.argtypes = [p, p, p, n, n, n, n, n, n, n, ctypes.c_float, ctypes.c_int, ctypes.c_int]
    code.rotate.restype = None
    random = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 20, generator=random)[:, 1:4, 1:18]
    angles = torch.randn(3, 7, generator=random)
    rotation = torch.polar(torch.ones_like(angles), angles).conj()
    for name, interleaved in (("rotate_interleaved", True), ("rotate_half_split", False)):
        expected = getattr(reference, name)(x, rotation, 2)
        if not (_rotate(code, x, rotation, 2, interleaved) - expected).norm() < 1e-6 * expected.norm():
            raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """float32 channels on the CPU."""
    if case is not None and (case.device != "cpu" or case.dtype != torch.float32):
        raise Unsuitable("it is for float32 channels on the CPU")
    _library()


def rotate_interleaved(x: Tensor, rotation: Tensor, first: int = 0) -> Tensor:
    """See the reference; a conjugated view of the rotation costs nothing."""
    return _rotate(_library(), x, rotation, first, True)


def rotate_half_split(x: Tensor, rotation: Tensor, first: int = 0) -> Tensor:
    """See the reference; a conjugated view of the rotation costs nothing."""
    return _rotate(_library(), x, rotation, first, False)


def _rotate(code: ctypes.CDLL, x: Tensor, rotation: Tensor, first: int, interleaved: bool) -> Tensor:
    if x.stride(2) != 1:
        x = x.contiguous()
    rotation = rotation.contiguous()
    (tokens, heads, width), turned = x.shape, 2 * rotation.shape[1]
    assert 0 <= first <= width - turned and rotation.shape[0] == tokens
    out = x.new_empty(tokens, heads, width)
    code.rotate(
        x.data_ptr(), rotation.data_ptr(), out.data_ptr(), tokens, heads, width, first, turned, x.stride(0), x.stride(1),
        -1.0 if rotation.is_conj() else 1.0, interleaved, native.threads(6 * out.numel()),
    )  # fmt: skip
    return out
