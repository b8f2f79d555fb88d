"""Hyper-connections: n residual streams per token, a gated mix into each block and out of it. All in float32.

iHC (Hy4) adds the block's output to every stream; mHC (DeepSeek-V4) also mixes the streams with a doubly
stochastic matrix. Sizes: T tokens, n streams, H hidden.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def _projected(streams: Tensor, fn: Tensor, norm_eps: float) -> Tensor:
    flat = streams.flatten(1).float()
    return F.linear(F.rms_norm(flat, flat.shape[-1:], None, norm_eps), fn)


def _mixed(streams: Tensor, pre: Tensor) -> Tensor:
    return torch.bmm(pre.unsqueeze(1), streams.float()).squeeze(1).to(streams.dtype)


def ihc_gates(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float, magnitude: float
) -> tuple[Tensor, Tensor]:
    """Block input and output gates of iHC.

    z = fn rms(concat streams); pre = sigmoid(scale_0 z + base) + eps; post = magnitude sigmoid(scale_1 z + base) + eps
    streams [T, n, H]; fn float32 [2n, nH]; scale, base float32 [2n] (scale already repeated per row).
    Returns block input [T, H] = sum_i pre_i X_i, and post float32 [T, n].
    """
    n = streams.shape[1]
    gates = torch.addcmul(base, _projected(streams, fn, norm_eps), scale).sigmoid_()
    return _mixed(streams, gates[:, :n] + eps), gates[:, n:] * magnitude + eps


def ihc_update(streams: Tensor, post: Tensor, output: Tensor) -> Tensor:
    """X_i + post_i y; streams [T, n, H], post [T, n], output [T, H] -> [T, n, H]."""
    return torch.addcmul(streams.float(), post.unsqueeze(-1), output.float().unsqueeze(1)).to(streams.dtype)


def mhc_gates(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Block input, output gates and stream-mixing matrix of mHC (manifold-constrained hyper-connections, DeepSeek-V4).

    z = fn rms(concat streams) in the order n pre, n post, n*n comb (row-major);
    pre = sigmoid(a_0 z + b) + eps; post = 2 sigmoid(a_1 z + b); comb = Sinkhorn(softmax_row(a_2 z + b) + eps).
    The Sinkhorn loop starts with the columns. fn float32 [n(n+2), nH]; scale, base float32 [n(n+2)].
    Returns block input [T, H], post float32 [T, n], comb float32 [T, n, n].
    """
    n = streams.shape[1]
    z = torch.addcmul(base, _projected(streams, fn, norm_eps), scale)
    pre, post = z[:, :n].sigmoid() + eps, z[:, n : 2 * n].sigmoid() * 2.0
    comb = z[:, 2 * n :].unflatten(-1, (n, n)).softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return _mixed(streams, pre), post, comb


def mhc_update(streams: Tensor, post: Tensor, comb: Tensor, output: Tensor) -> Tensor:
    """X'_j = post_j y + sum_i comb[i, j] X_i; streams [T, n, H], post [T, n], comb [T, n, n], output [T, H]."""
    mixed = torch.bmm(comb.transpose(1, 2), streams.float())
    return torch.addcmul(mixed, post.unsqueeze(-1), output.float().unsqueeze(1)).to(streams.dtype)


def collapse(streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float) -> Tensor:
    """Weighted sum of the streams before the last norm: w = sigmoid(scale fn rms(X) + base) + eps; [T, n, H] -> [T, H]."""
    gates = torch.addcmul(base, _projected(streams, fn, norm_eps), scale).sigmoid_() + eps
    return _mixed(streams, gates)
