"""Root-mean-square and layer normalisation, and the first with the residual addition before it."""

from torch import Tensor

from kernels.choose import Case, operator

__all__ = ["add_rms_norm", "layer_norm", "rms_norm"]


def _key(x: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype)


add_rms_norm = operator("add_rms_norm", _key, __name__, "triton", "cpu")
layer_norm = operator("layer_norm", _key, __name__, "triton")
rms_norm = operator("rms_norm", _key, __name__, "triton", "cpu")
