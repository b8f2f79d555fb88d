"""The operators of this room as one function with numbers: what C and Triton share. The formulas are in reference.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Enter = Callable[..., tuple[Tensor, Tensor, Tensor]]


def operators_of(enter: Enter) -> tuple[Callable[..., Tensor], Enter, Enter]:
    """`collapse`, `ihc_enter` and `mhc_enter`, with the reference's signatures, by a function of all that they share.

    enter(streams, mix, output, fn, scale, base, weight, norm_eps, eps, magnitude, post_eps, iterations) gives the streams,
    the mix post = magnitude * sigmoid + post_eps (and comb by so many iterations, if there are gates for it), and x.
    """

    def collapse(*arguments: Any) -> Tensor:
        return enter(*arguments, 0.0, 0.0, 0)[2]

    def ihc_enter(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        *_, eps, _magnitude = arguments
        return enter(*arguments, eps, 0)

    def mhc_enter(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        *common, iterations = arguments
        return enter(*common, 2.0, 0.0, iterations)

    return collapse, ihc_enter, mhc_enter
