"""Top-k routing on the CPU by the C code in cpu.c, for routers with a single group."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.router import reference
from kernels.router.reference import Scoring

_SOURCE = Path(__file__).with_name("cpu.c")


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE)
    p, n, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    code.route.argtypes = [p, p, n, p, p, p, n, n, n, i, ctypes.c_float, i]
    code.route.restype = None
    random = torch.Generator().manual_seed(0)
    logits, bias = torch.randn(4, 9, generator=random), torch.randn(9, generator=random)
    scorings: tuple[Scoring, ...] = ("sigmoid", "sqrt_softplus")
    for scoring in scorings:
        wanted_ids, wanted = reference.route(logits, bias, 3, scoring, 2.5)
        ids, weights = _route(code, logits, bias, 3, scoring, 2.5)
        if not torch.equal(ids, wanted_ids) or not (weights - wanted).norm() < 1e-5 * wanted.norm():
            raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """float32 logits on the CPU."""
    if case is not None and (case.device != "cpu" or case.dtype != torch.float32):
        raise Unsuitable("it is for float32 logits on the CPU")
    _library()


def route(
    logits: Tensor,
    bias: Tensor,
    k: int,
    scoring: Scoring,
    scale: float,
    num_groups: int = 1,
    kept_groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """See the reference, which also runs when there are groups."""
    if num_groups > 1 or k > logits.shape[1]:
        return reference.route(logits, bias, k, scoring, scale, num_groups, kept_groups)
    return _route(_library(), logits.contiguous(), bias.contiguous(), k, scoring, scale)


def _route(
    code: ctypes.CDLL, logits: Tensor, bias: Tensor, k: int, scoring: Scoring, scale: float
) -> tuple[Tensor, Tensor]:
    tokens, experts = logits.shape
    ids = torch.empty(tokens, k, dtype=torch.int64)
    weights, scratch = logits.new_empty(tokens, k), logits.new_empty(tokens, 2 * experts)
    code.route(
        logits.data_ptr(), bias.data_ptr(), experts if bias.dim() == 2 else 0, ids.data_ptr(), weights.data_ptr(),
        scratch.data_ptr(), tokens, experts, k, scoring == "sigmoid", scale, native.threads((20 + 2 * k) * logits.numel()),
    )  # fmt: skip
    return ids, weights
