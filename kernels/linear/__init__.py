"""Products of activations with dense weights, which may be kept in a narrower element type than the activations."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.linear.reference import fp8_block

__all__ = ["FEW_TOKENS", "gated_mlp", "headwise_linear", "linear", "linear_fp8"]

FEW_TOKENS = 32  # up to here a weight's one pass through memory decides; beyond, a matrix product in registers does


def _key(x: Tensor, weight: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype, (weight.dtype, "few" if x.shape[0] <= FEW_TOKENS else "many"))


def _fp8_key(x: Tensor, codes: Tensor, scales: Tensor) -> Case:
    few = "few" if x.shape[0] <= FEW_TOKENS else "many"
    return Case(x.device.type, x.dtype, (fp8_block(codes, scales)[1], codes.shape[1] % 128 == 0, few))


gated_mlp = operator("gated_mlp", _key, __name__, "triton", "cpu")
headwise_linear = operator("headwise_linear", _key, __name__, "cpu")
linear = operator("linear", _key, __name__, "cpu")
linear_fp8 = operator("linear_fp8", _fp8_key, __name__, "triton")
