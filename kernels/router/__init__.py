"""Choice of experts per token."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.router.reference import Scoring

__all__ = ["Scoring", "route", "route_fixed"]


def _key(logits: Tensor, *_: object) -> Case:
    return Case(logits.device.type, logits.dtype)


route = operator("route", _key, __name__, "triton", "cpu")
route_fixed = operator("route_fixed", _key, __name__, "triton")
