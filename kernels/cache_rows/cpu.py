"""Writing cache rows on the CPU by the C code in cpu.c: norm, rotation and storing in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels import native
from kernels.cache_rows import reference
from kernels.choose import Case, Unsuitable

_SOURCE = Path(__file__).with_name("cpu.c")
_NUMBERS = {torch.float32: 0, torch.bfloat16: 1}  # forms of a pool as cpu.c numbers them
_ROWS, _KEYS = 2, 3


@cache
def _library() -> ctypes.CDLL:
    """The compiled code, after it has agreed with the reference on small cases."""
    code = native.library(_SOURCE)
    p, n, i, f = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
    code.write_latents.argtypes = [p, i, p, i, p, p, n, p, f, p, i, n, n, n, i]
    code.write_rows.argtypes = [p, i, n, p, p, n, p, p, f, p, n, i, n, n, n, i]
    code.write_latents.restype = code.write_rows.restype = None
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 40, generator=random), torch.randn(40, generator=random)
    rotation = torch.polar(torch.ones(2, 4), torch.randn(2, 4, generator=random))
    slots = torch.tensor([2, 0])
    for interleaved in (True, False):
        latents = (slots, x, weight[:32], 1e-5, rotation, interleaved)
        _agree(reference.write_latents, partial(_write_latents, code), (32, 8), latents)
        for bias in (None, weight):
            rows = (slots, x, weight, bias, 1e-5, rotation, 30, interleaved)
            _agree(reference.write_rows, partial(_write_rows, code), (40,), rows)
    return code


def _agree(expected: Callable[..., None], got: Callable[..., None], widths: tuple[int, ...], arguments: Any) -> None:
    pools = [[torch.zeros(3, width) for width in widths] for _ in range(2)]
    expected(*pools[0], *arguments)
    got(*pools[1], *arguments)
    if not all((a - b).norm() < 1e-6 * a.norm() for a, b in zip(*pools, strict=True)):
        raise Unsuitable("the compiled code fails its self-test on this processor")


def suits(name: str, case: Case | None) -> None:
    """float32 rows on the CPU, pools of float32, bfloat16 or packed rows."""
    if case is not None and (
        case.device != "cpu" or case.dtype != torch.float32 or case.shape not in (*_NUMBERS, torch.uint8)
    ):
        raise Unsuitable("it is for float32 rows on the CPU, written as float32, bfloat16 or packed")
    _library()


def write_latents(*arguments: Any) -> None:
    """See the reference; pools contiguous."""
    _write_latents(_library(), *arguments)


def _write_latents(
    code: ctypes.CDLL,
    latent_pool: Tensor,
    rope_pool: Tensor | None,
    slots: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    rotation: Tensor,
    interleaved: bool,
) -> None:
    x, rotation = _rows(x, rotation)
    rows, latent, turned = x.shape[0], weight.shape[0], 2 * rotation.shape[1]
    assert latent_pool.is_contiguous() and slots.is_contiguous() and x.shape[1] == latent + turned
    if rope_pool is None:
        assert latent_pool.shape[-1] == reference.LATENT_BYTES
        forms = _ROWS, _ROWS
    else:
        assert rope_pool.is_contiguous()
        forms = _NUMBERS[latent_pool.dtype], _NUMBERS[rope_pool.dtype]
    code.write_latents(
        latent_pool.data_ptr(), forms[0], None if rope_pool is None else rope_pool.data_ptr(), forms[1], slots.data_ptr(),
        x.data_ptr(), x.stride(0), weight.data_ptr(), eps, rotation.data_ptr(), interleaved, rows, latent, turned,
        native.threads(10 * rows * x.shape[1]),
    )  # fmt: skip


def write_rows(*arguments: Any) -> None:
    """See the reference; pool contiguous."""
    _write_rows(_library(), *arguments)


def _write_rows(
    code: ctypes.CDLL,
    pool: Tensor,
    slots: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    rotation: Tensor,
    first: int,
    interleaved: bool,
) -> None:
    x, rotation = _rows(x, rotation)
    (rows, width), turned, page = x.shape, 2 * rotation.shape[1], 1
    assert pool.is_contiguous() and slots.is_contiguous() and 0 <= first <= width - turned
    if pool.dtype != torch.uint8:
        form = _NUMBERS[pool.dtype]
    elif pool.shape[-1] == reference.ENTRY_BYTES:
        form = _ROWS
    else:
        form, page = _KEYS, pool.shape[1] // (width + 4)
    code.write_rows(
        pool.data_ptr(), form, page, slots.data_ptr(), x.data_ptr(), x.stride(0), weight.data_ptr(),
        None if bias is None else bias.data_ptr(), eps, rotation.data_ptr(), first, interleaved, rows, width, turned,
        native.threads(10 * rows * width),
    )  # fmt: skip


def _rows(x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor]:
    """Both as the C code reads them; a row of x may be part of a wider one."""
    return x if x.stride(1) == 1 else x.contiguous(), rotation.resolve_conj().contiguous()
