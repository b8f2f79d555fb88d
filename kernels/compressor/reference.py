"""Compression of whole windows of tokens into one entry each, in plain torch and float32."""

from __future__ import annotations

import torch
from torch import Tensor


def compress_windows(rows: Tensor, slots: Tensor, bias: Tensor, overlap: bool) -> Tensor:
    """One entry per window: a softmax over its tokens, per channel, of gate + bias, applied to the values.

    entry(m, d) = sum_j p_j value_j(d),  p = softmax_j( gate_j(d) + bias_j(d) )   (DeepSeek-V4 section 2.3)

    rows: float32 [R, 2, C], values and gates of tokens. slots: int64 [M, J], the rows of each window's tokens in order;
    -1 is no token. Without overlap J is the window's length r, bias float32 [r, C], and entries have C channels.
    With overlap J = 2r: the r tokens of the window before and the r of the window itself; C = 2D, and the former give
    their first D channels (A), the latter their last D (B); bias float32 [r, 2D] holds both halves. Entries have D.
    Returns float32 [M, D], without norm and rope.
    """
    picked = rows[slots.clamp(min=0)]
    if overlap:
        ratio, width = bias.shape[0], bias.shape[1] // 2
        picked = torch.cat([picked[:, :ratio, :, :width], picked[:, ratio:, :, width:]], dim=1)
        bias = torch.cat([bias[:, :width], bias[:, width:]])
    values, gates = picked.unbind(2)
    gates = (gates + bias).masked_fill((slots < 0).unsqueeze(-1), float("-inf"))
    return (values * gates.softmax(dim=1)).sum(dim=1)
