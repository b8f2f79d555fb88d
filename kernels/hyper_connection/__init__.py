"""Mixing of the parallel residual streams around each block."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.hyper_connection.reference import mhc_gates, mhc_update

__all__ = ["collapse", "ihc_gates", "ihc_update", "mhc_gates", "mhc_update"]


def _key(streams: Tensor, *_: object) -> Case:
    return Case(streams.device.type, streams.dtype)


ihc_gates = operator("ihc_gates", _key, __name__, "cpu")
ihc_update = operator("ihc_update", _key, __name__, "cpu")
collapse = operator("collapse", _key, __name__, "cpu")
