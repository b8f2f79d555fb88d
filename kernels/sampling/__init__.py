"""The next token of several conversations at once, from logits to ids on the device."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.sampling.reference import COLDEST, NUMBERS

__all__ = ["COLDEST", "NUMBERS", "sample_tokens"]


def _key(logits: Tensor, *_: object) -> Case:
    return Case(logits.device.type, logits.dtype)


sample_tokens = operator("sample_tokens", _key, __name__)
