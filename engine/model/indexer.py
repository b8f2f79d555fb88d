"""Lightning indexer of the token-level families: which cached tokens a query attends to (DeepSeek-V3.2, section 2.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.model.batch import Batch
from engine.model.norm import LayerNorm
from engine.model.rope import rotate
from engine.model.spec import Indexer
from engine.model.weights import Weights
from kernels.cache_rows import pack_queries, write_rows
from kernels.index_select import index_select
from kernels.linear import linear


def first_rotated(indexer: Indexer) -> int:
    """The first rotated channel of a query or key; the rope channels lie first or last."""
    return 0 if indexer.rope_at == "first" else indexer.width - indexer.rope.width


def rotate_queries(
    indexer: Indexer, queries: Tensor, weights: Tensor, angles: Tensor, keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries [N, heads * width] rotated, in the precision of the cached keys: [N, heads, width].

    Also returns the head weights float32 [N, heads] to use with them, which take on the scales of packed queries.
    """
    rope, first, x = indexer.rope, first_rotated(indexer), queries.view(-1, indexer.heads, indexer.width)
    if keys.dtype == torch.uint8:
        packed: tuple[Tensor, Tensor] = pack_queries(x, weights, angles, first, rope.style == "interleaved")
        return packed
    return rotate(rope, x, angles, first), weights


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
        spec, norm, angles = self.spec, self.key_norm, batch.rotation(self.spec.rope)
        pool = batch.cache.pool(self.layer, "index")
        write_rows(
            pool, batch.token_slots, keys, norm.weight, norm.bias, norm.eps, angles, first_rotated(spec),
            spec.rope.style == "interleaved",
        )  # fmt: skip
        weights = linear(x.float(), self.head_weights) * self.head_scale
        q, weights = rotate_queries(spec, queries, weights, angles, pool)
        chosen = index_select(q, weights, pool, batch.page_table, batch.sequence, batch.positions + 1, spec.topk)
        if batch.trace is not None:
            batch.trace.topk.setdefault(self.layer, []).append(chosen)
        return batch.flat_rows(chosen, batch.cache.entries_per_page(self.layer, "index"))
