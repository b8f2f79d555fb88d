"""Dense products on the CPU with weights as they are kept: they pass through memory once.

Few tokens: the C code in cpu.c. Many: blocks of weights are widened into a buffer that stays in the processor's cache.
"""

from __future__ import annotations

import ctypes
import math
import threading
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.linear import FEW_TOKENS, reference
from kernels.swiglu import swiglu

_SOURCE = Path(__file__).with_name("cpu.c")
_WIDENED = 1 << 20  # float32 weights in the buffer for many tokens
_local = threading.local()


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE)
    p, n, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    code.linear.argtypes = [p, p, p, n, n, n, n, i, i]
    code.headwise_linear.argtypes = [p, p, p, n, n, n, n, n, n, i, i]
    code.gated_mlp.argtypes = [p, p, p, p, p, n, n, n, n, ctypes.c_float, i, i]
    code.linear.restype = code.headwise_linear.restype = code.gated_mlp.restype = None
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(5, 37, generator=random), torch.randn(7, 37, generator=random)
    gate_up, down = torch.randn(10, 37, generator=random), torch.randn(37, 5, generator=random)
    heads, up = torch.randn(2, 3, 9, generator=random), torch.randn(3, 9, 70, generator=random)
    for dtype in (torch.float32, torch.bfloat16):
        pairs = (
            (_linear(code, x, weight.to(dtype)), reference.linear(x, weight.to(dtype))),
            (_headwise(code, heads, up.to(dtype)), reference.headwise_linear(heads, up.to(dtype))),
            (
                _mlp(code, x, gate_up.to(dtype), down.to(dtype), 2.0),
                reference.gated_mlp(x, gate_up.to(dtype), down.to(dtype), 2.0),
            ),
        )
        if not all((a - b).norm() < 1e-5 * b.norm() for a, b in pairs):
            raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """Float32 tokens on the CPU, weights bfloat16, or float32 if the tokens are few."""
    if case is not None:
        if case.device != "cpu" or case.dtype != torch.float32:
            raise Unsuitable("it is for float32 activations on the CPU")
        assert isinstance(case.shape, tuple)
        weight, tokens = case.shape
        if weight not in (torch.float32, torch.bfloat16):
            raise Unsuitable("it is for float32 or bfloat16 weights")
        if tokens != "few" and (weight == torch.float32 or name == "headwise_linear"):
            raise Unsuitable("torch is faster for many tokens")
    _library()


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """See the reference."""
    if x.shape[0] > FEW_TOKENS:
        return _widened(x, weight)
    return _linear(_library(), x if x.stride(-1) == 1 else x.contiguous(), weight)


def gated_mlp(x: Tensor, gate_up: Tensor, down: Tensor, limit: float | None) -> Tensor:
    """See the reference."""
    if gate_up.dtype != down.dtype:  # a checkpoint may store them unlike
        return reference.gated_mlp(x, gate_up, down, limit)
    if x.shape[0] > FEW_TOKENS:
        return _widened(swiglu(_widened(x, gate_up), limit), down)
    return _mlp(_library(), x if x.stride(-1) == 1 else x.contiguous(), gate_up, down, limit)


def headwise_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See the reference."""
    return _headwise(_library(), x if x.stride(-1) == 1 else x.contiguous(), weight)


def _widened(x: Tensor, weight: Tensor) -> Tensor:
    """The product block by block through this thread's buffer."""
    outputs, inputs = weight.shape
    rows, out = max(1, _WIDENED // max(inputs, 1)), x.new_empty(x.shape[0], outputs)
    buffer: Tensor | None = getattr(_local, "buffer", None)
    if buffer is None or buffer.numel() < rows * inputs:
        with torch.inference_mode(False):  # made in that mode it could not be written outside of it
            buffer = _local.buffer = torch.empty(max(rows * inputs, _WIDENED))
    for first in range(0, outputs, rows):
        part = weight[first : first + rows]
        wide = buffer[: part.numel()].view(part.shape).copy_(part)
        torch.mm(x, wide.T, out=out[:, first : first + rows])
    return out


def _linear(code: ctypes.CDLL, x: Tensor, weight: Tensor) -> Tensor:
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    out = x.new_empty(tokens, outputs)
    code.linear(
        x.data_ptr(), weight.data_ptr(), out.data_ptr(), tokens, outputs, inputs, x.stride(0),
        weight.dtype == torch.bfloat16, native.threads(4 * out.numel() * inputs),
    )  # fmt: skip
    return out


def _mlp(code: ctypes.CDLL, x: Tensor, gate_up: Tensor, down: Tensor, limit: float | None) -> Tensor:
    tokens, (outputs, inner) = x.shape[0], down.shape
    hidden, out = x.new_empty(tokens, inner), x.new_empty(tokens, outputs)
    code.gated_mlp(
        x.data_ptr(), gate_up.data_ptr(), down.data_ptr(), hidden.data_ptr(), out.data_ptr(), tokens, outputs, inner,
        x.stride(0), math.inf if limit is None else limit, down.dtype == torch.bfloat16,
        native.threads(12 * out.numel() * inner),
    )  # fmt: skip
    return out


def _headwise(code: ctypes.CDLL, x: Tensor, weight: Tensor) -> Tensor:
    tokens, (heads, inputs, outputs) = x.shape[0], weight.shape
    out = x.new_empty(tokens, heads, outputs)
    code.headwise_linear(
        x.data_ptr(), weight.data_ptr(), out.data_ptr(), tokens, heads, inputs, outputs, x.stride(0), x.stride(1),
        weight.dtype == torch.bfloat16, native.threads(4 * out.numel() * inputs),
    )  # fmt: skip
    return out
