"""Weighted averages of neighbouring tokens: the compressed entries of DeepSeek-V4."""

from torch import Tensor

from kernels.choose import Case, operator

__all__ = ["compress_windows"]


def _key(rows: Tensor, slots: Tensor, bias: Tensor, overlap: bool) -> Case:
    return Case(rows.device.type, rows.dtype, "overlap" if overlap else None)


compress_windows = operator("compress_windows", _key, __name__, "triton")
