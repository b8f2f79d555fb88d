"""Independent hyper-connections on the CPU by the C code in cpu.c: one pass over a token's streams per call."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.hyper_connection import reference

_SOURCE = Path(__file__).with_name("cpu.c")


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE)
    p, n, f, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
    code.ihc_gates.argtypes = [p, p, p, p, p, p, p, n, n, n, f, f, f, i]
    code.ihc_update.argtypes = [p, p, p, p, n, n, n, i]
    code.collapse.argtypes = [p, p, p, p, p, p, n, n, n, f, f, i]
    for function in (code.ihc_gates, code.ihc_update, code.collapse):
        function.restype = None
    random = torch.Generator().manual_seed(0)
    streams, fn = torch.randn(3, 2, 37, generator=random), torch.randn(4, 74, generator=random) * 0.1
    scale, base = torch.rand(4, generator=random), torch.randn(4, generator=random)
    wanted = reference.ihc_gates(streams, fn, scale, base, 1e-5, 1e-6, 2.0)
    got = _gates(code, streams, fn, scale, base, 1e-5, 1e-6, 2.0)
    pairs = [*zip(got, wanted, strict=True)]
    pairs.append((_update(code, streams, got[1], got[0]), reference.ihc_update(streams, got[1], got[0])))
    top = (streams, fn[:2], scale[:2], base[:2], 1e-5, 1e-6)
    pairs.append((_collapse(code, *top), reference.collapse(*top)))
    if not all((a - b).norm() < 1e-5 * b.norm() for a, b in pairs):
        raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """float32 streams on the CPU."""
    if case is not None and (case.device != "cpu" or case.dtype != torch.float32):
        raise Unsuitable("it is for float32 streams on the CPU")
    _library()


def ihc_gates(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float, magnitude: float
) -> tuple[Tensor, Tensor]:
    """See the reference."""
    return _gates(_library(), streams.contiguous(), fn, scale, base, norm_eps, eps, magnitude)


def ihc_update(streams: Tensor, post: Tensor, output: Tensor) -> Tensor:
    """See the reference."""
    return _update(_library(), streams.contiguous(), post.contiguous(), output.contiguous())


def collapse(streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float) -> Tensor:
    """See the reference."""
    return _collapse(_library(), streams.contiguous(), fn, scale, base, norm_eps, eps)


def _gates(
    code: ctypes.CDLL,
    streams: Tensor,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    norm_eps: float,
    eps: float,
    magnitude: float,
) -> tuple[Tensor, Tensor]:
    tokens, n, hidden = streams.shape
    x, post, gate = streams.new_empty(tokens, hidden), streams.new_empty(tokens, n), streams.new_empty(tokens, 2 * n)
    code.ihc_gates(
        streams.data_ptr(), fn.data_ptr(), scale.data_ptr(), base.data_ptr(), x.data_ptr(), post.data_ptr(),
        gate.data_ptr(), tokens, n, hidden, norm_eps, eps, magnitude, native.threads(4 * n * streams.numel()),
    )  # fmt: skip
    return x, post


def _update(code: ctypes.CDLL, streams: Tensor, post: Tensor, output: Tensor) -> Tensor:
    tokens, n, hidden = streams.shape
    out = torch.empty_like(streams)
    code.ihc_update(
        streams.data_ptr(), post.data_ptr(), output.data_ptr(), out.data_ptr(), tokens, n, hidden,
        native.threads(2 * streams.numel()),
    )  # fmt: skip
    return out


def _collapse(
    code: ctypes.CDLL, streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float
) -> Tensor:
    tokens, n, hidden = streams.shape
    x, gate = streams.new_empty(tokens, hidden), streams.new_empty(tokens, n)
    code.collapse(
        streams.data_ptr(), fn.data_ptr(), scale.data_ptr(), base.data_ptr(), x.data_ptr(), gate.data_ptr(), tokens, n,
        hidden, norm_eps, eps, native.threads(2 * n * streams.numel()),
    )  # fmt: skip
    return x
