"""Products of activations with dense weights, which may be kept in a narrower element type than the activations."""

from torch import Tensor

from kernels.choose import Case, operator

__all__ = ["FEW_TOKENS", "gated_mlp", "headwise_linear", "linear"]

FEW_TOKENS = 32  # up to here a weight's one pass through memory decides; beyond, a matrix product in registers does


def _key(x: Tensor, weight: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype, (weight.dtype, "few" if x.shape[0] <= FEW_TOKENS else "many"))


gated_mlp = operator("gated_mlp", _key, __name__, "triton", "cpu")
headwise_linear = operator("headwise_linear", _key, __name__, "cpu")
linear = operator("linear", _key, __name__, "cpu")
