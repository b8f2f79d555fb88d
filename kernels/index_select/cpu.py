"""Index selection on the CPU by the C code in cpu.c: whole for few queries, behind torch's matrix product for many."""

from __future__ import annotations

import ctypes
from functools import cache, partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import native
from kernels.choose import Case, Unsuitable
from kernels.index_select import reference

_SOURCE = Path(__file__).with_name("cpu.c")
_WIDTH, _PADDING = 256, 4  # longest key; scores written behind the last entry
_DTYPES = (torch.float32, torch.bfloat16)
_FEW = 8  # queries up to which reading paged keys in place beats a matrix product over gathered ones


@cache
def _library(*flags: str) -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on a small case."""
    code = native.library(_SOURCE, *flags)
    p, n, i = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    code.index_select.argtypes = [p, p, p, i, p, p, p, p, n, n, n, n, n, n, p, p, i]
    code.top_positions.argtypes = [p, p, p, p, n, n, n, i]
    code.index_select.restype = code.top_positions.restype = None
    random = torch.Generator().manual_seed(0)
    queries, weights = torch.randn(2, 5, 32, generator=random), torch.randn(2, 5, generator=random)
    keys, table = torch.randn(3, 8, 32, generator=random), torch.tensor([[2, 0, 1]])
    case = (queries, weights, keys, table, torch.tensor([0, 0]), torch.tensor([23, 17]), 6)
    expected, scores, seen = (
        reference.index_select(*case),
        torch.randn(3, 40, generator=random),
        torch.tensor([40, 5, 9]),
    )
    tops = _top(code, scores, seen, 7), reference.top_positions(scores, seen, 7)
    if not torch.equal(_select(code, *case), expected) or not torch.equal(*tops):
        raise Unsuitable("the compiled code fails its self-test on this processor")
    return code


def suits(name: str, case: Case | None) -> None:
    """Float32 or bfloat16 keys."""
    if case is not None:
        if case.device != "cpu":
            raise Unsuitable(f"it runs on the CPU, not on {case.device}")
        if case.dtype not in _DTYPES:
            raise Unsuitable("it is for float32 or bfloat16 keys")
    _library()


def index_select(
    queries: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, sequence: Tensor, visible: Tensor, k: int
) -> Tensor:
    """See the reference. Few queries need keys that are contiguous, at most 256 wide and a multiple of 16."""
    if queries.shape[0] > _FEW or keys.shape[2] > _WIDTH or keys.shape[2] % 16 or not keys.is_contiguous():
        top = partial(_top, _library())
        return reference.select_by_blocks(queries, weights, keys, page_table, sequence, visible, k, top)
    return _select(_library(), queries, weights, keys, page_table, sequence, visible, k)


def _top(code: ctypes.CDLL, scores: Tensor, visible: Tensor, k: int) -> Tensor:
    """`reference.top_positions`."""
    rows, columns = scores.shape
    out = torch.empty(rows, min(k, columns), dtype=torch.int32)
    scores, seen = scores.contiguous(), visible.long().contiguous()
    threads = native.threads(20 * rows * columns)
    left = torch.empty(threads, columns, dtype=torch.int32)
    code.top_positions(
        scores.data_ptr(), seen.data_ptr(), out.data_ptr(), left.data_ptr(), rows, columns, out.shape[1], threads
    )
    return out


def _select(
    code: ctypes.CDLL,
    queries: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    sequence: Tensor,
    visible: Tensor,
    k: int,
) -> Tensor:
    longest = int(visible.max()) if visible.numel() else 0
    width = min(k, longest)
    padding = -queries.shape[1] % 16
    transposed, gates = queries.float().transpose(1, 2), weights.float()
    if padding:
        transposed, gates = F.pad(transposed, (0, padding)), F.pad(gates, (0, padding))
    transposed, gates = transposed.contiguous(), gates.contiguous()
    table, owner, seen = page_table.long().contiguous(), sequence.long().contiguous(), visible.long().contiguous()
    out = torch.empty(queries.shape[0], width, dtype=torch.int32)
    scores, left = torch.empty(longest + _PADDING), torch.empty(longest, dtype=torch.int32)
    code.index_select(
        transposed.data_ptr(), gates.data_ptr(), keys.data_ptr(), keys.dtype == torch.bfloat16, table.data_ptr(),
        owner.data_ptr(), seen.data_ptr(), out.data_ptr(), queries.shape[0], gates.shape[1], keys.shape[2],
        keys.shape[1], table.shape[1], width, scores.data_ptr(), left.data_ptr(),
        native.threads(2 * longest * gates.shape[1] * keys.shape[2]),
    )  # fmt: skip
    return out
