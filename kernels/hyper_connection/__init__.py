"""Mixing of the parallel residual streams around each block."""

from torch import Tensor

from kernels.choose import Case, operator

__all__ = ["collapse", "ihc_gates", "ihc_update", "mhc_gates", "mhc_update"]


def _key(streams: Tensor, *_: object) -> Case:
    return Case(streams.device.type, streams.dtype)


collapse = operator("collapse", _key, __name__, "triton", "cpu")
ihc_gates = operator("ihc_gates", _key, __name__, "triton", "cpu")
ihc_update = operator("ihc_update", _key, __name__, "triton", "cpu")
mhc_gates = operator("mhc_gates", _key, __name__, "triton")
mhc_update = operator("mhc_update", _key, __name__, "triton")
