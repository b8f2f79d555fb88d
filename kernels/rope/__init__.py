"""Rotary position embedding."""

from torch import Tensor

from kernels.choose import Case, operator

__all__ = ["rotate_half_split", "rotate_interleaved"]


def _key(x: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype)


rotate_half_split = operator("rotate_half_split", _key, __name__, "triton", "cpu")
rotate_interleaved = operator("rotate_interleaved", _key, __name__, "triton", "cpu")
