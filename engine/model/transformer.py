"""One forward pass, from token ids to logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.attention import MlaAttention
from engine.model.batch import Batch
from engine.model.compressed_attention import CompressedAttentionBlock
from engine.model.hyper_connections import Pending, StreamCollapse, residual_site
from engine.model.mlp import DenseFeedForward, MoeFeedForward
from engine.model.spec import DenseMlp, LatentAttention, Layer, ModelSpec, PlainResidual, RopeVision
from engine.model.weights import Weights
from kernels.linear import linear


class DecoderLayer:
    """Attention and feed-forward, each entered through the site that connects it to the residual stream(s)."""

    def __init__(self, number: int, spec: Layer, model: ModelSpec, weights: Weights) -> None:
        hidden, eps = model.hidden, model.norm_eps
        self.number = number
        self.attention_site = residual_site(spec.residual, hidden, eps, weights, "attention")
        attention = weights.scope("attention")
        self.attention: MlaAttention | CompressedAttentionBlock
        if isinstance(spec.attention, LatentAttention):
            self.attention = MlaAttention(spec.attention, hidden, number, attention)
        else:
            self.attention = CompressedAttentionBlock(spec.attention, hidden, number, attention)
        self.mlp_site = residual_site(spec.residual, hidden, eps, weights, "mlp")
        self.mlp: DenseFeedForward | MoeFeedForward
        if isinstance(spec.mlp, DenseMlp):
            self.mlp = DenseFeedForward(spec.mlp, hidden, weights.scope("mlp"))
        else:
            self.mlp = MoeFeedForward(spec.mlp, hidden, model.vocab, number, weights.scope("mlp"))

    def __call__(self, pending: Pending, batch: Batch) -> Pending:
        streams, mix, x = self.attention_site.enter(pending)
        pending = Pending(streams, mix, self.attention(x, batch))
        streams, mix, x = self.mlp_site.enter(pending)
        return Pending(streams, mix, self.mlp(x, batch))


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
        self.collapse = StreamCollapse(residual, spec.hidden, spec.norm_eps, weights)
        self.head = weights.linear("head", spec.vocab, spec.hidden)

    def embed(self, batch: Batch) -> Tensor:
        """Token embeddings with image rows laid over them, as the first residual stream(s): [N, n, H] or [N, H]."""
        # Ids beyond the table are pseudo ids of image positions; their rows are replaced below.
        x = F.embedding(batch.token_ids.clamp(max=self.spec.vocab - 1), self.embedding).to(self.dtype)
        for rows, values in batch.embeddings:
            x.index_copy_(0, rows, values.to(x.dtype))
        if self.padding is not None:
            token, vector = self.padding
            x = torch.where((batch.token_ids == token).unsqueeze(1), vector.to(x.dtype), x)
        if isinstance(self.spec.layers[0].residual, PlainResidual):
            return x
        return x.unsqueeze(1).expand(-1, self.spec.streams, -1)

    @torch.inference_mode()
    def __call__(self, batch: Batch) -> Tensor:
        """Logits float32 [L, vocab] of the rows in batch.logit_rows; caches this step's tokens and counts them."""
        pending = Pending(self.embed(batch))
        for layer in self.layers:
            pending = layer(pending, batch)
            if batch.trace is not None:
                batch.trace.layer_out.setdefault(layer.number, []).append(pending.settled())
        hidden = self.collapse(pending.rows(batch.logit_rows))
        if batch.trace is not None:
            batch.trace.final_hidden.append(hidden)
        return linear(hidden, self.head).float()
