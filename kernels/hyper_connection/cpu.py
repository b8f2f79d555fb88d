"""Hyper-connections on the CPU by the C code in cpu.c: one call from a block's output to the next block's input."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.hyper_connection import reference
from kernels.hyper_connection.kinds import operators_of

_SOURCE = Path(__file__).with_name("cpu.c")


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE)
    p, n, f, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
    code.enter.argtypes = [p] * 10 + [n] * 5 + [f] * 4 + [n, i]
    code.enter.restype = None
    random = torch.Generator().manual_seed(0)
    streams, output, fn = (torch.randn(*s, generator=random) * 0.3 for s in ((3, 2, 37), (3, 37), (8, 74)))
    scale, base, weight = (torch.randn(n, generator=random) for n in (8, 8, 37))
    first = _enter(code, streams, None, None, fn, scale, base, weight, 1e-5, 1e-6, 2.0, 0.0, 5)
    pending = (first[0], first[1], output)
    second = _enter(code, *pending, fn[:4], scale[:4], base[:4], weight, 1e-5, 1e-6, 2.0, 1e-6, 0)
    wanted = (
        *reference.mhc_enter(streams, None, None, fn, scale, base, weight, 1e-5, 1e-6, 5),
        *reference.ihc_enter(*pending, fn[:4], scale[:4], base[:4], weight, 1e-5, 1e-6, 2.0),
    )
    if not all((a - b).norm() < 1e-5 * b.norm() for a, b in zip(first + second, wanted, strict=True)):
        raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """float32 streams on the CPU."""
    if case is not None and (case.device != "cpu" or case.dtype != torch.float32):
        raise Unsuitable("it is for float32 streams on the CPU")
    _library()


def _enter(
    code: ctypes.CDLL,
    streams: Tensor,
    mix: Tensor | None,
    output: Tensor | None,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    weight: Tensor,
    norm_eps: float,
    eps: float,
    magnitude: float,
    post_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The number of gates and the width of the mix say which kind it is."""
    (tokens, n, hidden), gates = streams.shape, fn.shape[0]
    settled = streams = streams.contiguous()
    pending: tuple[int | None, int | None, int] = (None, None, 0)
    if mix is not None and output is not None:
        mix, output, settled = mix.contiguous(), output.contiguous(), torch.empty_like(streams)
        pending = mix.data_ptr(), output.data_ptr(), mix.shape[1]
    following, x = streams.new_empty(tokens, gates - n), streams.new_empty(tokens, hidden)
    code.enter(
        streams.data_ptr(), *pending[:2], fn.data_ptr(), scale.data_ptr(), base.data_ptr(), weight.data_ptr(),
        settled.data_ptr(), following.data_ptr(), x.data_ptr(), tokens, n, hidden, gates, pending[2], norm_eps, eps,
        magnitude, post_eps, iterations, native.threads(2 * gates * streams.numel()),
    )  # fmt: skip
    return settled, following, x


collapse, ihc_enter, mhc_enter = operators_of(lambda *arguments: _enter(_library(), *arguments))
