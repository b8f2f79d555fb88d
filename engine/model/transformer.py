"""One forward pass, from token ids to logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.attention import MlaAttention
from engine.model.batch import Batch
from engine.model.compressed_attention import CompressedAttentionBlock
from engine.model.hyper_connections import StreamCollapse, residual_site
from engine.model.mlp import DenseFeedForward, MoeFeedForward
from engine.model.norm import RmsNorm
from engine.model.spec import DenseMlp, LatentAttention, Layer, ModelSpec, RopeVision
from engine.model.weights import Weights
from kernels.linear import linear


class DecoderLayer:
    """Attention and feed-forward, each behind a norm and connected to the residual stream(s)."""

    def __init__(self, number: int, spec: Layer, model: ModelSpec, weights: Weights) -> None:
        hidden, eps = model.hidden, model.norm_eps
        self.number = number
        self.attention_site = residual_site(spec.residual, hidden, eps, weights.scope("attention_mix"))
        self.attention_norm = RmsNorm(weights, "attention_norm", hidden, eps)
        attention = weights.scope("attention")
        self.attention: MlaAttention | CompressedAttentionBlock
        if isinstance(spec.attention, LatentAttention):
            self.attention = MlaAttention(spec.attention, hidden, number, attention)
        else:
            self.attention = CompressedAttentionBlock(spec.attention, hidden, number, attention)
        self.mlp_site = residual_site(spec.residual, hidden, eps, weights.scope("mlp_mix"))
        self.mlp_norm = RmsNorm(weights, "mlp_norm", hidden, eps)
        self.mlp: DenseFeedForward | MoeFeedForward
        if isinstance(spec.mlp, DenseMlp):
            self.mlp = DenseFeedForward(spec.mlp, hidden, weights.scope("mlp"))
        else:
            self.mlp = MoeFeedForward(spec.mlp, hidden, model.vocab, number, weights.scope("mlp"))

    def __call__(self, streams: Tensor, batch: Batch) -> Tensor:
        x, mix = self.attention_site.enter(streams)
        streams = self.attention_site.leave(streams, mix, self.attention(self.attention_norm(x), batch))
        x, mix = self.mlp_site.enter(streams)
        return self.mlp_site.leave(streams, mix, self.mlp(self.mlp_norm(x), batch))


class Transformer:
    """Embedding, layers, head. All state lives in the batch's cache."""

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        self.spec = spec
        self.dtype = weights.dtype
        self.embedding = weights.linear("embedding", spec.vocab, spec.hidden)
        self.padding: tuple[int, Tensor] | None = None
        if isinstance(spec.vision, RopeVision):
            self.padding = spec.vision.pad_token, weights.vector("vision.pad", spec.hidden)
        self.layers = [
            DecoderLayer(number, layer, spec, weights.scope(f"layers.{number}"))
            for number, layer in enumerate(spec.layers)
        ]
        residual = spec.layers[-1].residual
        self.collapse = StreamCollapse(residual, spec.hidden, spec.norm_eps, weights.scope("collapse"))
        self.norm = RmsNorm(weights, "norm", spec.hidden, spec.norm_eps)
        self.head = weights.linear("head", spec.vocab, spec.hidden)

    def embed(self, batch: Batch) -> Tensor:
        """Token embeddings with image rows laid over them, copied to every residual stream: [N, n, H]."""
        # Ids beyond the table are pseudo ids of image positions; their rows are replaced below.
        x = F.embedding(batch.token_ids.clamp(max=self.spec.vocab - 1), self.embedding).to(self.dtype)
        for rows, values in batch.embeddings:
            x.index_copy_(0, rows, values.to(x.dtype))
        if self.padding is not None:
            token, vector = self.padding
            x = torch.where((batch.token_ids == token).unsqueeze(1), vector.to(x.dtype), x)
        return x.unsqueeze(1).expand(-1, self.spec.streams, -1)

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> Tensor:
        """Logits float32 [L, vocab] of the rows in batch.logit_rows; caches this step's tokens and counts them."""
        streams = self.embed(batch)
        for layer in self.layers:
            streams = layer(streams, batch)
            if batch.trace is not None:
                batch.trace.layer_out.setdefault(layer.number, []).append(streams)
        hidden = self.norm(self.collapse(streams[batch.logit_rows]))
        if batch.trace is not None:
            batch.trace.final_hidden.append(hidden)
        return linear(hidden, self.head).float()
