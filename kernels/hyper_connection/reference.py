"""Hyper-connections: n residual streams per token, a gated mix into each block and out of it. All in float32.

iHC (Hy4) adds the block's output to every stream; mHC (DeepSeek-V4) also mixes the streams with a doubly
stochastic matrix. What a block's gates leave for its output is one float32 row per token, its `mix`: n output gates,
and for mHC the n*n matrix behind them, row-major. Sizes: T tokens, n streams, H hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.norm.reference import rms_norm


def update(streams: Tensor, mix: Tensor, output: Tensor) -> Tensor:
    """Add a block's output to the streams.

    iHC: X'_j = X_j + post_j y; mHC: X'_j = post_j y + sum_i comb[i, j] X_i, by the width of the mix.
    streams [T, n, H], mix [T, n] or [T, n + n*n], output [T, H] -> [T, n, H].
    """
    n = streams.shape[1]
    mixed = streams.float()
    if mix.shape[1] > n:
        mixed = torch.bmm(mix[:, n:].unflatten(1, (n, n)).transpose(1, 2), mixed)
    return torch.addcmul(mixed, mix[:, :n].unsqueeze(-1), output.float().unsqueeze(1)).to(streams.dtype)


def ihc_enter(
    streams: Tensor,
    mix: Tensor | None,
    output: Tensor | None,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    weight: Tensor,
    norm_eps: float,
    eps: float,
    magnitude: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """From one block's output to the next block's input, iHC.

    X = update(streams, mix, output), or streams where nothing is pending (mix and output None);
    z = fn rms(concat X); pre = sigmoid(scale z + base) + eps; post = magnitude sigmoid(scale z + base) + eps;
    x = weight rms(sum_i pre_i X_i).
    streams [T, n, H]; fn float32 [2n, nH]; scale, base float32 [2n] (scale already repeated per row); weight float32 [H].
    Returns X [T, n, H], the mix post [T, n] and x [T, H].
    """
    streams = _settled(streams, mix, output)
    n = streams.shape[1]
    z = _gates(streams, fn, scale, base, norm_eps).sigmoid_()
    return streams, z[:, n:] * magnitude + eps, rms_norm(_mixed(streams, z[:, :n] + eps), weight, norm_eps)


def mhc_enter(
    streams: Tensor,
    mix: Tensor | None,
    output: Tensor | None,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    weight: Tensor,
    norm_eps: float,
    eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """From one block's output to the next block's input, mHC (manifold-constrained hyper-connections, DeepSeek-V4).

    As iHC, with z = scale fn rms(concat X) + base in the order n pre, n post, n*n comb (row-major);
    pre = sigmoid(z) + eps; post = 2 sigmoid(z); comb = Sinkhorn(softmax_row(z) + eps), starting with the columns.
    fn float32 [n(n+2), nH]; scale, base float32 [n(n+2)].
    Returns X [T, n, H], the mix [T, n + n*n] and x [T, H].
    """
    streams = _settled(streams, mix, output)
    n = streams.shape[1]
    z = _gates(streams, fn, scale, base, norm_eps)
    pre, post = z[:, :n].sigmoid() + eps, z[:, n : 2 * n].sigmoid() * 2.0
    comb = z[:, 2 * n :].unflatten(-1, (n, n)).softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return streams, torch.cat([post, comb.flatten(1)], dim=1), rms_norm(_mixed(streams, pre), weight, norm_eps)


def collapse(
    streams: Tensor,
    mix: Tensor,
    output: Tensor,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    weight: Tensor,
    norm_eps: float,
    eps: float,
) -> Tensor:
    """From the last block's output to the normed hidden state that the head reads.

    X = update(streams, mix, output); weight rms(sum_i w_i X_i) with w = sigmoid(scale fn rms(concat X) + base) + eps.
    fn float32 [n, nH]; scale, base float32 [n]; weight float32 [H]. Returns [T, H].
    """
    streams = update(streams, mix, output)
    gates = _gates(streams, fn, scale, base, norm_eps).sigmoid_() + eps
    return rms_norm(_mixed(streams, gates), weight, norm_eps)


def _settled(streams: Tensor, mix: Tensor | None, output: Tensor | None) -> Tensor:
    return streams if mix is None or output is None else update(streams, mix, output)


def _gates(streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float) -> Tensor:
    flat = streams.flatten(1).float()
    return torch.addcmul(base, F.linear(rms_norm(flat, None, norm_eps), fn), scale)


def _mixed(streams: Tensor, pre: Tensor) -> Tensor:
    return torch.bmm(pre.unsqueeze(1), streams.float()).squeeze(1).to(streams.dtype)
