"""Residual kinds behind one interface: `enter` gives the block's input, `leave` adds its output."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from engine.model.spec import IhcResidual, MhcResidual, PlainResidual, Residual
from engine.model.weights import Weights
from kernels.hyper_connection import collapse, ihc_gates, ihc_update, mhc_gates, mhc_update

Mix = tuple[Tensor, ...]


class ResidualSite(Protocol):
    """One block's connection to the residual stream(s): streams [N, n, H] (n = 1 for a plain residual)."""

    def enter(self, streams: Tensor) -> tuple[Tensor, Mix]:
        """Block input [N, H], and what `leave` needs."""

    def leave(self, streams: Tensor, mix: Mix, output: Tensor) -> Tensor:
        """Streams after the block gave `output` [N, H]."""


class PlainSite:
    """x + block(x)."""

    def enter(self, streams: Tensor) -> tuple[Tensor, Mix]:
        return streams.squeeze(1), ()

    def leave(self, streams: Tensor, mix: Mix, output: Tensor) -> Tensor:
        return streams + output.unsqueeze(1)


def _gate_rows(scale: Tensor, sizes: list[int]) -> Tensor:
    """One scalar per group of rows, repeated for each row."""
    return torch.repeat_interleave(scale, torch.tensor(sizes, device=scale.device), output_size=sum(sizes))


class IhcSite:
    """Independent hyper-connections."""

    def __init__(self, spec: IhcResidual, hidden: int, norm_eps: float, weights: Weights) -> None:
        n = spec.streams
        self.spec, self.norm_eps = spec, norm_eps
        self.fn, self.base = weights.vector("fn", 2 * n, n * hidden), weights.vector("base", 2 * n)
        self.scale = _gate_rows(weights.vector("scale", 2), [n, n])

    def enter(self, streams: Tensor) -> tuple[Tensor, Mix]:
        x, post = ihc_gates(streams, self.fn, self.scale, self.base, self.norm_eps, self.spec.eps, self.spec.magnitude)
        return x, (post,)

    def leave(self, streams: Tensor, mix: Mix, output: Tensor) -> Tensor:
        return ihc_update(streams, mix[0], output)


class MhcSite:
    """Manifold hyper-connections."""

    def __init__(self, spec: MhcResidual, hidden: int, norm_eps: float, weights: Weights) -> None:
        n = spec.streams
        rows = n * (n + 2)
        self.spec, self.norm_eps = spec, norm_eps
        self.fn, self.base = weights.vector("fn", rows, n * hidden), weights.vector("base", rows)
        self.scale = _gate_rows(weights.vector("scale", 3), [n, n, n * n])

    def enter(self, streams: Tensor) -> tuple[Tensor, Mix]:
        x, post, comb = mhc_gates(
            streams, self.fn, self.scale, self.base, self.norm_eps, self.spec.eps, self.spec.iterations
        )
        return x, (post, comb)

    def leave(self, streams: Tensor, mix: Mix, output: Tensor) -> Tensor:
        return mhc_update(streams, mix[0], mix[1], output)


def residual_site(spec: Residual, hidden: int, norm_eps: float, weights: Weights) -> ResidualSite:
    """The connection of one block."""
    if isinstance(spec, PlainResidual):
        return PlainSite()
    if isinstance(spec, IhcResidual):
        return IhcSite(spec, hidden, norm_eps, weights)
    return MhcSite(spec, hidden, norm_eps, weights)


class StreamCollapse:
    """Streams to one hidden state before the last norm: a learned weighted sum, or the only stream."""

    def __init__(self, spec: Residual, hidden: int, norm_eps: float, weights: Weights) -> None:
        self.spec, self.norm_eps = spec, norm_eps
        if not isinstance(spec, PlainResidual):
            n = spec.streams
            self.fn, self.base = weights.vector("fn", n, n * hidden), weights.vector("base", n)
            self.scale = _gate_rows(weights.vector("scale", 1), [n])

    def __call__(self, streams: Tensor) -> Tensor:
        if isinstance(self.spec, PlainResidual):
            return streams.squeeze(1)
        return collapse(streams, self.fn, self.scale, self.base, self.norm_eps, self.spec.eps)
