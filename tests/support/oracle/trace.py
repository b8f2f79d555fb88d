"""Observes forward passes of a transformers model: index selections, router choices, layer outputs, score spread."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_LAYER = re.compile(r"^model\.(?:language_model\.)?layers\.(\d+)(?:\.|$)")
_HIDDEN = -1e30  # scores below this are masked out
_PAD = torch.iinfo(torch.int32).max


@dataclass
class Trace:
    """What the last forward pass did, by layer; T is the number of its query tokens. Meaning as in ``OracleCase``."""

    topk: dict[int, Tensor] = field(default_factory=dict)
    topk_margin: dict[int, Tensor] = field(default_factory=dict)
    router_ids: dict[int, Tensor] = field(default_factory=dict)
    router_weights: dict[int, Tensor] = field(default_factory=dict)
    router_margin: dict[int, Tensor] = field(default_factory=dict)
    layer_out: dict[int, Tensor] = field(default_factory=dict)
    score_std: dict[int, float] = field(default_factory=dict)  # of the visible attention logits
    image_features: list[Tensor] = field(default_factory=list)
    final_hidden: Tensor | None = None

    def smallest_margin(self) -> float:
        """Smallest distance of any selection from a tie."""
        margins = [*self.topk_margin.values(), *self.router_margin.values()]
        return min((float(m.min()) for m in margins), default=float("inf"))


def cut_margin(scores: Tensor, k: int) -> Tensor:
    """Gap between the k-th and the next visible score, in std of the visible scores; ``[T, N] -> [T]``."""
    rows, width = scores.shape
    if width <= k:
        return torch.full((rows,), float("inf"))
    top = scores.topk(k + 1, dim=-1).values
    visible = scores > _HIDDEN
    count = visible.sum(-1)
    mean = torch.where(visible, scores, 0.0).sum(-1) / count.clamp(min=1)
    var = torch.where(visible, (scores - mean[:, None]) ** 2, 0.0).sum(-1) / count.clamp(min=1)
    gap = (top[:, k - 1] - top[:, k]) / var.sqrt().clamp(min=1e-12)
    return torch.where(count > k, gap, float("inf"))


def _router_margin(router: nn.Module, logits: Tensor, ids: Tensor) -> Tensor:
    """Margin of a top-k router, group stage included; ``[T, E] -> [T]``. Hash routers never tie.

    ``row_bias`` and ``judged_rows`` are left at a router by whoever changes its choice.
    """
    margin = torch.full((logits.shape[0],), float("inf"))
    bias = getattr(router, "row_bias", getattr(router, "e_score_correction_bias", None))
    if bias is None:
        return margin
    score = router.score_fn(logits) if hasattr(router, "score_fn") else logits.sigmoid()
    choice = score + bias
    groups = getattr(router, "num_group", 1)
    if groups > 1:
        group_score = choice.view(choice.shape[0], groups, -1).topk(2, dim=-1).values.sum(-1)
        margin = cut_margin(group_score, router.topk_group)
        kept = torch.zeros_like(group_score).scatter(1, group_score.topk(router.topk_group).indices, 1.0)
        choice = choice.masked_fill(kept.repeat_interleave(choice.shape[1] // groups, 1) == 0, float("-inf"))
    chosen = choice.topk(router.top_k).indices.sort(-1).values
    judged = getattr(router, "judged_rows", torch.ones(len(ids), dtype=torch.bool))
    assert torch.equal(chosen[judged], ids.sort(-1).values[judged]), "own router formula disagrees with transformers"
    margin = torch.minimum(margin, cut_margin(choice, router.top_k))
    return torch.where(judged, margin, float("inf"))


class _TopkArguments(TorchFunctionMode):
    """Remembers the scores of the last ``topk`` call: the final masked scores of an indexer."""

    scores: Tensor

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        if func in (torch.topk, torch.Tensor.topk):
            self.scores = args[0]
        return func(*args, **(kwargs or {}))


def _watch_indexer(module: nn.Module, layer: int, trace: Trace) -> list:
    mode = _TopkArguments()

    def after(_m: nn.Module, _a: object, output: Tensor) -> None:
        mode.__exit__(None, None, None)
        scores, indices = mode.scores[0], output[0].long()
        kept = (indices >= 0) & (scores.gather(-1, indices.clamp(min=0)) > _HIDDEN)
        ordered = torch.where(kept, indices, _PAD).sort(-1).values
        trace.topk[layer] = torch.where(ordered == _PAD, -1, ordered).to(torch.int32)
        trace.topk_margin[layer] = cut_margin(scores, module.index_topk)

    def before(*_: object) -> None:
        mode.__enter__()

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]


def _watch_router(module: nn.Module, layer: int, trace: Trace) -> list:
    def after(_m: nn.Module, _a: object, output: tuple[Tensor, Tensor, Tensor]) -> None:
        logits, weights, ids = output
        order = ids.argsort(-1)
        trace.router_ids[layer] = ids.gather(-1, order).to(torch.int32)
        trace.router_weights[layer] = weights.gather(-1, order).float()
        trace.router_margin[layer] = _router_margin(module, logits, ids)

    return [module.register_forward_hook(after)]


def _watch_layer(module: nn.Module, layer: int, trace: Trace) -> list:
    def after(_m: nn.Module, _a: object, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        trace.layer_out[layer] = hidden[0].clone()

    return [module.register_forward_hook(after)]


_WATCHERS = {"Indexer": _watch_indexer, "Router": _watch_router, "DecoderLayer": _watch_layer}


@contextmanager
def _measured_scores(model: nn.Module, trace: Trace) -> Iterator[None]:
    """Wrap the model file's eager attention to measure the std of visible attention logits."""
    modeling: Any = sys.modules[type(model).__module__]
    original = modeling.eager_attention_forward

    def measured(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kw: object
    ) -> object:
        if attention_mask is not None and query.shape[2] > 1:
            keys = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            logits = torch.matmul(query, keys.transpose(2, 3)) * kw["scaling"]
            visible = (attention_mask > _HIDDEN).expand_as(logits)
            trace.score_std[module.layer_idx] = float(logits[visible].std())
        return original(module, query, key, value, attention_mask, **kw)

    modeling.eager_attention_forward = measured
    try:
        yield
    finally:
        modeling.eager_attention_forward = original


@contextmanager
def tracing(model: nn.Module) -> Iterator[Trace]:
    """Install all observers for the forward passes inside the ``with`` block; a later pass overwrites an earlier."""
    trace = Trace()

    def keep_norm(_m: nn.Module, _a: object, output: Tensor) -> None:
        trace.final_hidden = output[0].clone()

    def keep_image(_m: nn.Module, _a: object, output: Tensor) -> None:
        trace.image_features.append(output[0].clone())

    handles = []
    for name, module in model.named_modules():
        match = _LAYER.match(name)
        if match:
            for ending, watch in _WATCHERS.items():
                if type(module).__name__.endswith(ending):
                    handles += watch(module, int(match.group(1)), trace)
        elif name in ("model.norm", "model.language_model.norm"):
            handles.append(module.register_forward_hook(keep_norm))
        elif name == "model.vision_tower.patch_merger":
            handles.append(module.register_forward_hook(keep_image))
    with ExitStack() as stack:
        for handle in handles:
            stack.callback(handle.remove)
        stack.enter_context(_measured_scores(model, trace))
        yield trace
