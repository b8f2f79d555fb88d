"""Gated activation of the feed-forward layers."""

from torch import Tensor

from kernels.choose import Case, operator

__all__ = ["swiglu"]


def _key(gate_up: Tensor, *_: object) -> Case:
    return Case(gate_up.device.type, gate_up.dtype)


swiglu = operator("swiglu", _key, __name__, "triton")
