"""Sampling in plain torch without a host synchronisation; shapes do not depend on values. B rows, V ids.

Chances are float64, so that a row's id hangs neither on the order of sums nor on the rows beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

COLDEST = (
    1e-4  # temperatures below it are greedy: only the best id has a chance, and logits / temperature could overflow
)
NUMBERS = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p", "uniform")  # columns of `numbers`


def sample_tokens(logits: Tensor, numbers: Tensor, seen: Tensor | None, greedy: bool) -> Tensor:
    """One id per row of logits float32 [B, V]: int64 [B], or -1 where the largest logit is not finite.

    numbers float32 [B, 6], see NUMBERS; filters apply in the order of its columns. top_k 0 keeps all ids; the first id
    that brings the sum of the kept chances to top_p still belongs; min_p is a share of the largest chance; uniform in
    [0, 1) is the random draw. seen: bool [B, V], ids that the repetition penalty applies to (CTRL, section 4.1), or None.
    greedy: the caller knows that every temperature is below COLDEST. Of equal logits the lowest id comes first.
    """
    penalty, temperature, top_k, top_p, min_p, uniform = numbers.unsqueeze(-1).unbind(1)
    if seen is not None:
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    best, ids = logits.max(-1)
    if greedy:
        return ids.masked_fill(~best.isfinite(), -1)
    scores, order = (logits / temperature.clamp(min=COLDEST)).sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scores.shape[1], device=scores.device)
    outside = (rank >= top_k) & (top_k > 0)
    chances = scores.masked_fill(outside, -torch.inf).softmax(-1, dtype=torch.float64)
    before = chances.cumsum(-1).roll(1, -1)  # the chances of the ids ahead
    kept = (rank == 0) | (top_p >= 1) | (before < top_p)
    kept &= chances >= min_p * chances[:, :1]
    sums = chances.masked_fill_(~kept, 0.0).cumsum(-1)
    place = torch.searchsorted(sums, uniform * sums[:, -1:], right=True).clamp(max=scores.shape[1] - 1)
    cold = temperature.squeeze(-1) < COLDEST
    finite = torch.where(cold, best, scores[:, 0]).isfinite()
    return torch.where(cold, ids, order.gather(-1, place).squeeze(-1)).masked_fill(~finite, -1)
