"""Top-k expert routing without auxiliary loss: experts are chosen by score + bias, weighted by score alone."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Scoring = Literal["sigmoid", "sqrt_softplus"]


def _scores(logits: Tensor, scoring: Scoring) -> Tensor:
    return logits.sigmoid() if scoring == "sigmoid" else F.softplus(logits).sqrt()


def _weights(scores: Tensor, ids: Tensor, scale: float) -> Tensor:
    chosen = scores.gather(-1, ids)
    return chosen * (scale / (chosen.sum(-1, keepdim=True) + 1e-20))


def _largest(values: Tensor, k: int) -> Tensor:
    """Indices of the k largest values of each row, ties to the lowest index; [N, E] -> int64 [N, k]."""
    if values.is_cuda:  # without asking the device anything
        return values.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    top, ids = values.topk(k, dim=-1)
    if bool((values >= top[:, -1:]).sum(-1).gt(k).any()):  # torch.topk has no order among ties
        ids = values.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return ids


def route(
    logits: Tensor,
    bias: Tensor,
    k: int,
    scoring: Scoring,
    scale: float,
    num_groups: int = 1,
    kept_groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """Choose k experts per token ("noaux_tc" of DeepSeek-V3).

    logits: float32 [N, E]; bias: float32 [E] or [N, E], used for the choice only. With num_groups > 1 only the
    kept_groups groups with the largest sum of their two best biased scores take part.
    Returns ids int64 [N, k] and weights float32 [N, k] = score / sum(chosen scores) * scale.
    """
    scores = _scores(logits, scoring)
    choice = scores + bias
    if num_groups > 1:
        grouped = choice.unflatten(-1, (num_groups, -1))
        best = _largest(grouped.topk(2, dim=-1).values.sum(-1), kept_groups)
        kept = torch.zeros_like(grouped[..., 0], dtype=torch.bool).scatter_(-1, best, True)
        choice = grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2)
    ids = _largest(choice, k)
    return ids, _weights(scores, ids, scale)


def route_fixed(logits: Tensor, ids: Tensor, scoring: Scoring, scale: float) -> Tensor:
    """Weights float32 [N, k] of experts chosen elsewhere (hash-routed layers); logits [N, E], ids int64 [N, k]."""
    return _weights(_scores(logits, scoring), ids, scale)
