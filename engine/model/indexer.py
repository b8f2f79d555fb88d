"""Lightning indexer of the token-level families: which cached tokens a query attends to (DeepSeek-V3.2, section 2.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.batch import Batch
from engine.model.norm import LayerNorm
from engine.model.rope import rotate
from engine.model.spec import Indexer
from engine.model.weights import Weights
from kernels.index_select import index_select
from kernels.linear import linear

E4M3_MAX = 448.0


def rotate_part(indexer: Indexer, x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the rope channels of x [N, heads, width], which lie first or last, and keep the others."""
    first = 0 if indexer.rope_at == "first" else indexer.width - indexer.rope.width
    return rotate(indexer.rope, x, angles, first)


def match_keys(queries: Tensor, weights: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Queries [N, heads, D] in the precision of the cached keys, weights float32 [N, heads] to go with them.

    Packed keys are met by e4m3 queries; their scale is positive, so it moves through the ReLU into the weights.
    """
    if keys.dtype != torch.uint8:
        return queries, weights
    scale = (queries.float().abs().amax(-1) / E4M3_MAX).clamp(min=1e-12)
    codes = (queries.float() / scale.unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return codes, weights * scale


class TokenIndexer:
    """Scores every cached token with ReLU dot products of small heads and keeps the best `topk`."""

    def __init__(self, spec: Indexer, hidden: int, layer: int, weights: Weights) -> None:
        self.spec, self.layer = spec, layer
        self.key_norm = LayerNorm(weights, "key_norm", spec.width, spec.key_norm_eps)
        self.head_weights = weights.vector("head_weights", spec.heads, hidden)
        self.head_scale = spec.heads**-0.5 * spec.width**-0.5

    def __call__(self, x: Tensor, queries: Tensor, keys: Tensor, batch: Batch) -> Tensor:
        """Write this step's index keys, select for each token. x [N, hidden] is the normed layer input,
        queries [N, heads * width] and keys [N, width] its projections. Returns flat cache rows int64 [N, K], -1 padded."""
        spec, angles = self.spec, batch.rotation(self.spec.rope)
        q = rotate_part(spec, queries.unflatten(-1, (spec.heads, spec.width)), angles)
        k = rotate_part(spec, self.key_norm(keys).unsqueeze(1), angles).squeeze(1)
        batch.cache.write(self.layer, "index", batch.token_slots, k)
        pool = batch.cache.pool(self.layer, "index")
        weights = linear(x.float(), self.head_weights) * self.head_scale
        q, weights = match_keys(q, weights, pool)
        chosen = index_select(q, weights, pool, batch.page_table, batch.sequence, batch.positions + 1, spec.topk)
        if batch.trace is not None:
            batch.trace.topk.setdefault(self.layer, []).append(chosen)
        return batch.flat_rows(chosen, batch.cache.entries_per_page(self.layer, "index"))
