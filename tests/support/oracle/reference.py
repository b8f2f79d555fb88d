"""Runs the reference model on one prompt and collects everything that tests compare with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .prompt import Prompt
from .trace import Trace, tracing

BOUNDARY_LENGTHS = (127, 128, 129)  # around the 128-token compression border; the whole prompt comes on top
GREEDY_STEPS = 16
CACHE_TOLERANCE = 1e-4  # max abs difference of cached and uncached logits
MIN_SELECTION_MARGIN = 2e-5  # smallest accepted gap at a top-k cut, in std of the row
MIN_LOGIT_GAP = 2e-3  # smallest accepted gap between the two best logits of a greedy step


class NearTie(Exception):
    """The prompt has a decision so close to a tie that a correct fp32 engine could differ."""


@dataclass(frozen=True)
class Reference:
    """Expected tensors (see ``OracleCase``) and how far they are from being ambiguous."""

    tensors: dict[str, Tensor]
    trace: Trace
    smallest_margin: float
    smallest_logit_gap: float
    cache_difference: float


def prefix_lengths(total: int) -> list[int]:
    """Prompt lengths that get a greedy continuation."""
    return [*(n for n in BOUNDARY_LENGTHS if n < total), total]


def probe_rows(total: int) -> Tensor:
    """Token rows whose residual stream after each layer is kept."""
    return torch.tensor([*(r for r in (0, 1, 31, 32, 63, 126, 127, 128, 255) if r < total - 1), total - 1])


def full_pass(model: nn.Module, prompt: Prompt, ids: Tensor) -> tuple[Tensor, Trace]:
    """One pass without cache over ``ids [n]``: logits ``[n, V]`` and the trace."""
    with tracing(model) as trace:
        logits = model(**prompt.inputs(ids), use_cache=False).logits[0].float()
    return logits, trace


def greedy(model: nn.Module, prompt: Prompt, length: int) -> tuple[Tensor, Tensor, float]:
    """Prefill ``length`` tokens, then decode one by one: ids ``[steps]``, logits ``[steps, V]``, smallest margin.

    The margin covers the decoded tokens only; the prompt rows are those of the pass without cache.
    """
    out = model(**prompt.inputs(prompt.ids[:length]), use_cache=True)
    logits = [out.logits[0, -1].float()]
    margin = float("inf")
    with tracing(model) as trace:
        for _ in range(GREEDY_STEPS - 1):
            out = model(input_ids=logits[-1].argmax().view(1, 1), cache=out.cache, use_cache=True)
            logits.append(out.logits[0, -1].float())
            margin = min(margin, trace.smallest_margin())
    stacked = torch.stack(logits)
    return stacked.argmax(-1), stacked, margin


def _named(trace: Trace, rows: Tensor) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for layer in sorted(trace.topk):
        tensors[f"topk.{layer}"] = trace.topk[layer]
        tensors[f"topk_margin.{layer}"] = trace.topk_margin[layer]
    for layer in sorted(trace.router_ids):
        tensors[f"router.{layer}.ids"] = trace.router_ids[layer]
        tensors[f"router.{layer}.weights"] = trace.router_weights[layer]
    for layer in sorted(trace.layer_out):
        tensors[f"layer_out.{layer}"] = trace.layer_out[layer][rows]
    return tensors


@torch.no_grad()
def compute(model: nn.Module, prompt: Prompt) -> Reference:
    """All expected tensors; raises ``NearTie`` as soon as a decision is too close."""
    total = len(prompt.ids)
    logits, trace = full_pass(model, prompt, prompt.ids)
    margin = trace.smallest_margin()
    if margin < MIN_SELECTION_MARGIN:
        raise NearTie(f"selection margin {margin:.1e}")
    rows = probe_rows(total)
    tensors = {"input_ids": prompt.ids, "logits": logits, "final_hidden": trace.final_hidden, "probe_rows": rows}
    if prompt.media:
        tensors.update(prompt.media_tensors(model, trace))
    tensors.update(_named(trace, rows))

    gap, difference = float("inf"), 0.0
    for length in prefix_lengths(total):
        ids, cached, decode_margin = greedy(model, prompt, length)
        top = cached.topk(2, dim=-1).values
        margin, gap = min(margin, decode_margin), min(gap, float((top[:, 0] - top[:, 1]).min()))
        if margin < MIN_SELECTION_MARGIN or gap < MIN_LOGIT_GAP:
            raise NearTie(f"selection margin {margin:.1e}, logit gap {gap:.1e} after {length} tokens")
        difference = max(difference, float((cached[0] - logits[length - 1]).abs().max()))
        tensors[f"greedy.{length}.ids"], tensors[f"greedy.{length}.logits"] = ids, cached
    # One pass without cache over the longest continuation proves the cached steps.
    continued, _ = full_pass(model, prompt, torch.cat([prompt.ids, ids[:-1]]))
    difference = max(difference, float((cached - continued[total - 1 :]).abs().max()))
    if difference > CACHE_TOLERANCE:
        raise AssertionError(f"cached and uncached logits differ by {difference:.1e}")
    return Reference(tensors, trace, margin, gap, difference)
