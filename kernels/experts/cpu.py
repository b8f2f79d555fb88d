"""Experts on the CPU straight from packed MXFP4, by the C code in cpu.c; float32 inside, any floating type outside."""

from __future__ import annotations

import ctypes
import time
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.experts import reference
from kernels.experts.reference import ExpertSource, MxFp4Matrix, PackedExpert

MANY_TOKENS = 16  # tokens per expert from which decoding once and multiplying with torch wins
_SOURCE = Path(__file__).with_name("cpu.c")


class _ExpertPointers(ctypes.Structure):
    _fields_ = [(f"{part}{kind}", ctypes.c_void_p) for part in ("gate", "up", "down") for kind in ("", "_scale")]


@cache
def _library(*flags: str) -> ctypes.CDLL:
    """The compiled code with its argument types set, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE, *flags)
    p, n, f, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
    code.mxfp4_matvec.argtypes = [p, p, p, p, n, n, n, p, i]
    code.mxfp4_experts.argtypes = [p, p, p, p, p, p, n, n, n, n, f, p, i]
    code.mxfp4_decode.argtypes = [p, p, p, n, n, i]
    for function in (code.mxfp4_matvec, code.mxfp4_experts, code.mxfp4_decode):
        function.restype = None
    _agree(code)
    return code


def _agree(code: ctypes.CDLL) -> None:
    """Raise Unsuitable unless decoding is bit-equal and a product is close to the reference."""
    random = torch.Generator().manual_seed(0)
    codes = torch.randint(256, (67, 48), generator=random, dtype=torch.uint8)
    scale = torch.randint(118, 132, (67, 3), generator=random, dtype=torch.uint8)
    expected = reference.dequantize_mxfp4(codes, scale)
    x = torch.randn(5, 96, generator=random)
    product = torch.addmm(torch.zeros(5, 67, dtype=torch.float64), x.double(), expected.double().T)
    off = (_matvec(code, codes, scale, x) - product).norm() / product.norm()
    if not torch.equal(_decode(code, codes, scale), expected) or not off < 1e-5:
        raise Unsuitable("the compiled code fails its self-test on this processor")


@cache
def _ratio_to_torch() -> float:
    """Time of a packed matrix-vector product over that of torch on decoded weights, 1024 x 2048, best of nine."""
    code = _library()
    codes = torch.randint(256, (1024, 1024), dtype=torch.uint8)
    scale = torch.full((1024, 64), 120, dtype=torch.uint8)
    x, weights = torch.randn(1, 2048), torch.randn(1024, 2048)
    best = [float("inf"), float("inf")]
    for _ in range(9):
        for n, work in enumerate((lambda: _matvec(code, codes, scale, x), lambda: F.linear(x, weights))):
            start = time.perf_counter()
            work()
            best[n] = min(best[n], time.perf_counter() - start)
    return best[0] / best[1]


def suits(name: str, case: Case | None) -> None:
    """The C code needs a compiler, must pass its self-test, and must not be slower than torch on decoded weights."""
    if case is not None and case.device != "cpu":
        raise Unsuitable(f"it runs on the CPU, not on {case.device}")
    _library()
    if (ratio := _ratio_to_torch()) > 1.25:
        raise Unsuitable(f"measured {ratio:.1f} times slower than torch on decoded weights")


def _matvec(code: ctypes.CDLL, codes: Tensor, scale: Tensor, x: Tensor) -> Tensor:
    (tokens, columns), rows = x.shape, codes.shape[0]
    out, scratch = x.new_empty(tokens, rows), x.new_empty(tokens, columns)
    code.mxfp4_matvec(
        codes.data_ptr(), scale.data_ptr(), x.data_ptr(), out.data_ptr(), tokens, rows, columns, scratch.data_ptr(),
        torch.get_num_threads(),
    )  # fmt: skip
    return out


def _decode(code: ctypes.CDLL, codes: Tensor, scale: Tensor, out: Tensor | None = None) -> Tensor:
    rows, columns = codes.shape[0], 2 * codes.shape[1]
    out = torch.empty(rows, columns) if out is None else out
    code.mxfp4_decode(codes.data_ptr(), scale.data_ptr(), out.data_ptr(), rows, columns, torch.get_num_threads())
    return out


def packed_experts(x: Tensor, ids: Tensor, weights: Tensor, expert: ExpertSource, limit: float | None) -> Tensor:
    """See the reference. Few tokens per expert: one call that never decodes to memory; many: decode one, multiply."""
    pairs = ids.numel()
    flat = ids.flatten().tolist()
    if pairs == 0:
        return torch.zeros_like(x)
    if x.shape[0] == 1:
        return _one_token(x, weights, [expert(e) for e in flat], limit)
    used = sorted(set(flat))
    if pairs > MANY_TOKENS * len(used):
        return _decoded_experts(x, ids, weights, expert, limit)
    order = sorted(range(pairs), key=flat.__getitem__)
    slots = ids.shape[1]
    begin, previous = [], -1
    for place, pair in enumerate(order):
        if flat[pair] != previous:
            begin.append(place)
            previous = flat[pair]
    begin.append(pairs)
    parts = [expert(e) for e in used]
    hidden, width = x.shape[1], parts[0].gate.codes.shape[0]
    pointers = (_ExpertPointers * len(used))(*(_ExpertPointers(*part.pointers) for part in parts))
    source = x.float().contiguous()
    mixed = torch.empty(x.shape, dtype=torch.float32)
    scratch = torch.empty(pairs * (hidden + width), dtype=torch.float32)
    token = (ctypes.c_int32 * pairs)(*(pair // slots for pair in order))
    share = weights.float().flatten().tolist()
    _library().mxfp4_experts(
        pointers, (ctypes.c_int32 * len(begin))(*begin), token, (ctypes.c_float * pairs)(*(share[p] for p in order)),
        source.data_ptr(), mixed.data_ptr(), len(used), x.shape[0], hidden, width,
        -1.0 if limit is None else limit, scratch.data_ptr(), native.threads(6 * pairs * hidden * width),
    )  # fmt: skip
    return mixed.to(x.dtype)


@cache
def _one_token_plan(pairs: int) -> tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_int32]]:
    """Begins and tokens of one token that uses `pairs` experts once each."""
    return (ctypes.c_int32 * (pairs + 1))(*range(pairs + 1)), (ctypes.c_int32 * pairs)()


def _one_token(x: Tensor, weights: Tensor, parts: list[PackedExpert], limit: float | None) -> Tensor:
    """The decode step of a single conversation, with as little Python around the call as possible."""
    pairs, hidden, width = len(parts), x.shape[1], parts[0].gate.codes.shape[0]
    begin, token = _one_token_plan(pairs)
    source, share = x.float().contiguous(), weights.float().contiguous()
    mixed, scratch = torch.empty_like(source), source.new_empty(pairs * (hidden + width))
    _library().mxfp4_experts(
        b"".join([part.address_bytes for part in parts]), begin, token, share.data_ptr(), source.data_ptr(),
        mixed.data_ptr(), pairs, 1, hidden, width, -1.0 if limit is None else limit, scratch.data_ptr(),
        native.threads(6 * pairs * hidden * width),
    )  # fmt: skip
    return mixed.to(x.dtype)


def _decoded_experts(x: Tensor, ids: Tensor, weights: Tensor, expert: ExpertSource, limit: float | None) -> Tensor:
    """Decode each expert in use into one buffer, multiply all its tokens with torch."""
    code = _library()
    first = expert(int(ids[0, 0]))
    width, hidden = first.gate.codes.shape[0], x.shape[1]
    gate_up, down = torch.empty(2 * width, hidden), torch.empty(hidden, width)

    def matrices(e: int) -> tuple[Tensor, Tensor]:
        part = expert(e)
        _decode(code, part.gate.codes, part.gate.scale, gate_up[:width])
        _decode(code, part.up.codes, part.up.scale, gate_up[width:])
        return gate_up, _decode(code, part.down.codes, part.down.scale, down)

    return reference.grouped_experts(x.float(), ids, weights, limit, matrices).to(x.dtype)


def mxfp4_experts(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: MxFp4Matrix, down: MxFp4Matrix, limit: float | None
) -> Tensor:
    """See the reference; the stacked matrices must be contiguous."""
    width = gate_up.codes.shape[1] // 2

    def expert(e: int) -> PackedExpert:
        both = MxFp4Matrix(gate_up.codes[e], gate_up.scale[e])
        gate, up = (MxFp4Matrix(both.codes[part], both.scale[part]) for part in (slice(width), slice(width, None)))
        return PackedExpert(gate, up, MxFp4Matrix(down.codes[e], down.scale[e]))

    return packed_experts(x, ids, weights, expert, limit)
