"""Feed-forward layers: dense SwiGLU, and mixture of experts with its router and shared expert."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.batch import Batch
from engine.model.linear import FusedLinear, Linear
from engine.model.spec import DenseMlp, Moe
from engine.model.weights import Weights
from kernels.linear import gated_mlp, linear
from kernels.router import route, route_fixed


class DenseFeedForward:
    """down(swiglu(gate x, up x))."""

    def __init__(self, spec: DenseMlp, hidden: int, weights: Weights) -> None:
        self.limit = spec.limit
        self.gate_up = FusedLinear(weights, hidden, gate=spec.width, up=spec.width)
        self.down = Linear(weights, "down", hidden, spec.width)

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        return gated_mlp(x, self.gate_up.weight, self.down.weight, self.limit)


class Router:
    """Chooses experts from float32 logits, or by token id in hash-routed layers."""

    def __init__(self, spec: Moe, hidden: int, vocab: int, layer: int, weights: Weights) -> None:
        self.spec, self.layer, self.vocab = spec, layer, vocab
        self.weight = weights.vector("weight", spec.experts, hidden)
        self.token_experts = weights.table("token_experts", vocab, spec.topk) if spec.hash_routed else None
        self.bias = None if spec.hash_routed else weights.vector("bias", spec.experts)
        self.image_bias = weights.vector("image_bias", spec.experts) if spec.image_bias else None

    def __call__(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """x [N, hidden] -> expert ids int64 [N, k] and weights float32 [N, k]."""
        spec, logits = self.spec, linear(x.float(), self.weight)
        # Ids behind the vocabulary belong to pictures; they have a choice bias of their own and no line in the table.
        image = (batch.token_ids >= self.vocab).unsqueeze(1) if self.image_bias is not None else None
        bias = self.bias
        if image is not None and self.image_bias is not None:
            bias = self.image_bias if bias is None else torch.where(image, self.image_bias, bias)
        if bias is not None:
            ids, weights = route(logits, bias, spec.topk, spec.scoring, spec.scale, spec.num_groups, spec.kept_groups)
        if self.token_experts is not None:
            fixed = self.token_experts[batch.token_ids.clamp(max=self.vocab - 1)]
            ids = fixed if image is None else torch.where(image, ids, fixed)
            weights = route_fixed(logits, ids, spec.scoring, spec.scale)
        if batch.trace is not None:
            batch.trace.router.setdefault(self.layer, []).append((ids, weights))
        return ids, weights


class MoeFeedForward:
    """Routed experts plus the shared expert that every token uses."""

    def __init__(self, spec: Moe, hidden: int, vocab: int, layer: int, weights: Weights) -> None:
        self.spec = spec
        self.router = Router(spec, hidden, vocab, layer, weights.scope("router"))
        self.experts = weights.experts(spec, hidden)
        shared = DenseMlp(spec.shared_width, spec.shared_limit)
        self.shared = DenseFeedForward(shared, hidden, weights.scope("shared")) if spec.shared_width else None

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        ids, weights = self.router(x, batch)
        routed = self.experts(x, ids, weights, self.spec.limit)
        return routed if self.shared is None else routed + self.shared(x, batch)
