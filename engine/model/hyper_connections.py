"""Residual kinds behind one interface: a block's `site` adds the last block's output, mixes and norms this one's input."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.model.spec import IhcResidual, MhcResidual, PlainResidual, Residual
from engine.model.weights import Weights
from kernels.hyper_connection import collapse, ihc_enter, mhc_enter, update
from kernels.norm import add_rms_norm, rms_norm


class Pending(NamedTuple):
    """Residual stream(s) and the last block's output, which the next site adds while it reads them anyway.

    streams [N, n, H], or [N, H] for a plain residual; output [N, H], None before the first block; mix: what the
    block's site left for its output, float32 [N, ...], None for a plain residual.
    """

    streams: Tensor
    mix: Tensor | None = None
    output: Tensor | None = None

    def rows(self, indices: Tensor) -> Pending:
        """Chosen rows, ascending and each at most once."""
        if len(indices) == len(self.streams):
            return self
        streams, mix, output = (None if part is None else part.index_select(0, indices) for part in self)
        return Pending(streams, mix, output)

    def settled(self) -> Tensor:
        """The stream(s) with everything added."""
        if self.output is None:
            return self.streams
        return self.streams + self.output if self.mix is None else update(self.streams, self.mix, self.output)


class ResidualSite(Protocol):
    """One block's connection to the residual stream(s), with the block's input norm."""

    def enter(self, pending: Pending) -> tuple[Tensor, Tensor | None, Tensor]:
        """Settled streams, the mix for the block's output, and the block's normed input [N, H]."""


class PlainSite:
    """x + block(norm(x))."""

    def __init__(self, hidden: int, norm_eps: float, weights: Weights, block: str) -> None:
        self.norm, self.norm_eps = weights.vector(f"{block}_norm", hidden), norm_eps

    def enter(self, pending: Pending) -> tuple[Tensor, Tensor | None, Tensor]:
        streams, _, output = pending
        if output is None:
            return streams, None, rms_norm(streams, self.norm, self.norm_eps)
        total, x = add_rms_norm(streams, output, self.norm, self.norm_eps)
        return total, None, x


class _Gates(NamedTuple):
    """Parameters of a site's gates; `scale` is repeated for each row of its group."""

    fn: Tensor
    scale: Tensor
    base: Tensor


def _gates(weights: Weights, hidden: int, streams: int, *groups: int) -> _Gates:
    """`groups`: rows that share one scale each."""
    rows = sum(groups)
    fn, base = weights.vector("fn", rows, streams * hidden), weights.vector("base", rows)
    scale = weights.vector("scale", len(groups))
    repeats = torch.tensor(groups, device=scale.device)
    return _Gates(fn, torch.repeat_interleave(scale, repeats, output_size=rows), base)


class IhcSite:
    """Independent hyper-connections."""

    def __init__(self, spec: IhcResidual, hidden: int, norm_eps: float, weights: Weights, block: str) -> None:
        n = spec.streams
        self.spec, self.norm_eps = spec, norm_eps
        self.gates = _gates(weights.scope(f"{block}_mix"), hidden, n, n, n)
        self.norm = weights.vector(f"{block}_norm", hidden)

    def enter(self, pending: Pending) -> tuple[Tensor, Tensor | None, Tensor]:
        return ihc_enter(*pending, *self.gates, self.norm, self.norm_eps, self.spec.eps, self.spec.magnitude)


class MhcSite:
    """Manifold hyper-connections."""

    def __init__(self, spec: MhcResidual, hidden: int, norm_eps: float, weights: Weights, block: str) -> None:
        n = spec.streams
        self.spec, self.norm_eps = spec, norm_eps
        self.gates = _gates(weights.scope(f"{block}_mix"), hidden, n, n, n, n * n)
        self.norm = weights.vector(f"{block}_norm", hidden)

    def enter(self, pending: Pending) -> tuple[Tensor, Tensor | None, Tensor]:
        return mhc_enter(*pending, *self.gates, self.norm, self.norm_eps, self.spec.eps, self.spec.iterations)


def residual_site(spec: Residual, hidden: int, norm_eps: float, weights: Weights, block: str) -> ResidualSite:
    """The connection of the block called `block`."""
    if isinstance(spec, PlainResidual):
        return PlainSite(hidden, norm_eps, weights, block)
    if isinstance(spec, IhcResidual):
        return IhcSite(spec, hidden, norm_eps, weights, block)
    return MhcSite(spec, hidden, norm_eps, weights, block)


class StreamCollapse:
    """From the last block's output to what the head reads: a learned weighted sum, or the only stream, and its norm."""

    def __init__(self, spec: Residual, hidden: int, norm_eps: float, weights: Weights) -> None:
        self.spec, self.norm_eps = spec, norm_eps
        if not isinstance(spec, PlainResidual):
            self.gates = _gates(weights.scope("collapse"), hidden, spec.streams, spec.streams)
        self.norm = weights.vector("norm", hidden)

    def __call__(self, pending: Pending) -> Tensor:
        """[N, hidden]; something must be pending."""
        if isinstance(self.spec, PlainResidual):
            return add_rms_norm(pending.streams, pending.output, self.norm, self.norm_eps)[1]
        return collapse(*pending, *self.gates, self.norm, self.norm_eps, self.spec.eps)
