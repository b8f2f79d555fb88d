"""Sparse attention with little work per step on the CPU, by the C code in cpu.c: listed rows are read in place, never gathered."""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.sparse_attention import reference
from kernels.sparse_attention.reference import Rows

_SOURCE = Path(__file__).with_name("cpu.c")
_DTYPES = (torch.float32, torch.bfloat16)


_SOURCES = struct.Struct("=QQQqq")  # one Source of cpu.c: latent, rope, slots, their number, whether bfloat16


@cache
def _library(*flags: str) -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE, *flags)
    p, n, f = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    code.sparse_attention.argtypes = [p, p, p, n, f, p, p, p, n, n, n, n, ctypes.c_int]
    code.sparse_attention.restype = None
    random = torch.Generator().manual_seed(0)
    rows = Rows(
        torch.randn(9, 48, generator=random), torch.randn(9, 16, generator=random), torch.tensor([[3, -1, 8, 0, 5]])
    )
    case = (
        torch.randn(1, 5, 48, generator=random),
        torch.randn(1, 5, 16, generator=random),
        (rows,),
        0.3,
        torch.ones(5),
    )
    expected = reference.sparse_attention(*case)
    if not (_attend(code, *case) - expected).norm() < 1e-5 * expected.norm():
        raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """Little work over float32 or bfloat16 rows; else torch's gather and matrix product are faster."""
    if case is not None:
        if case.device != "cpu":
            raise Unsuitable(f"it runs on the CPU, not on {case.device}")
        if case.dtype not in _DTYPES or case.shape != "small":
            raise Unsuitable("it is for little work over float32 or bfloat16 rows")
    _library()


def sparse_attention(
    q_latent: Tensor, q_rope: Tensor | None, sources: tuple[Rows, ...], scale: float, sinks: Tensor | None
) -> Tensor:
    """See the reference; rows contiguous and multiples of 16 wide, else the reference runs."""
    for rows in sources:
        parts = [rows.latent] if rows.rope is None else [rows.latent, rows.rope]
        if any(p.shape[1] % 16 or not p.is_contiguous() or p.dtype != rows.latent.dtype for p in parts):
            return reference.sparse_attention(q_latent, q_rope, sources, scale, sinks)
    return _attend(_library(), q_latent, q_rope, sources, scale, sinks)


def _attend(
    code: ctypes.CDLL,
    q_latent: Tensor,
    q_rope: Tensor | None,
    sources: tuple[Rows, ...],
    scale: float,
    sinks: Tensor | None,
) -> Tensor:
    queries, heads, width = q_latent.shape
    q, r, sink = (None if t is None else t.float() for t in (q_latent, q_rope, sinks))
    assert q is not None
    if heads % 4:
        padding = (0, 0, 0, -heads % 4)
        q, r, sink = (
            F.pad(q, padding),
            None if r is None else F.pad(r, padding),
            None if sink is None else F.pad(sink, padding[2:]),
        )
    q, r, sink = q.contiguous(), None if r is None else r.contiguous(), None if sink is None else sink.contiguous()
    slots = [rows.slots.long().contiguous() for rows in sources]
    described, count = [], 0
    for (latent, rope, _), listed in zip(sources, slots, strict=True):
        keys = 0 if rope is None or r is None else rope.data_ptr()
        described.append(
            _SOURCES.pack(latent.data_ptr(), keys, listed.data_ptr(), listed.shape[1], latent.dtype == torch.bfloat16)
        )
        count += listed.shape[1]
    weights = q.new_empty(queries, q.shape[1], count)
    out = torch.empty_like(q)
    code.sparse_attention(
        q.data_ptr(), None if r is None else r.data_ptr(), b"".join(described), len(sources), scale,
        None if sink is None else sink.data_ptr(), weights.data_ptr(), out.data_ptr(), queries, q.shape[1], width,
        0 if r is None else r.shape[2], native.threads(4 * weights.numel() * width),
    )  # fmt: skip
    return (out[:, :heads] if heads % 4 else out).to(q_latent.dtype)
