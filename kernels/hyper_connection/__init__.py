"""The parallel residual streams around each block: adding a block's output, the gated mix into the next one, its norm."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.hyper_connection.reference import update

__all__ = ["collapse", "ihc_enter", "mhc_enter", "update"]


def _key(streams: Tensor, *_: object) -> Case:
    return Case(streams.device.type, streams.dtype)


collapse = operator("collapse", _key, __name__, "triton", "cpu")
ihc_enter = operator("ihc_enter", _key, __name__, "triton", "cpu")
mhc_enter = operator("mhc_enter", _key, __name__, "triton", "cpu")
