"""Multi-head latent attention over selected tokens (DeepSeek-V2 section 2.1, absorbed form; sinks and gate as in Hy4)."""

from __future__ import annotations

from torch import Tensor

from engine.model.batch import Batch
from engine.model.indexer import TokenIndexer
from engine.model.linear import FusedLinear, Linear
from engine.model.norm import RmsNorm
from engine.model.rope import rotate
from engine.model.spec import LatentAttention
from engine.model.weights import Weights
from kernels.cache_rows import write_latents
from kernels.linear import headwise_linear
from kernels.sparse_attention import sparse_attention


class MlaAttention:
    """Caches one latent and one rotated key row per token; every head reads them through its own up-projection."""

    def __init__(self, spec: LatentAttention, hidden: int, layer: int, weights: Weights) -> None:
        self.spec, self.layer = spec, layer
        index = spec.indexer
        entry = {"q_down": spec.q_rank, "kv_down": spec.kv_rank + spec.rope.width}
        if spec.output_gate:
            entry["gate"] = spec.heads * spec.value_width
        queries = {"q_up": spec.heads * (spec.nope_width + spec.rope.width)}
        if index is not None:
            entry["indexer.key"] = index.width
            queries["indexer.query"] = index.heads * index.width
        self.entry = FusedLinear(weights, hidden, **entry)
        self.queries = FusedLinear(weights, spec.q_rank, **queries)
        self.q_norm = RmsNorm(weights, "q_norm", spec.q_rank, spec.latent_eps)
        self.kv_norm = RmsNorm(weights, "kv_norm", spec.kv_rank, spec.latent_eps)
        up = weights.linear("kv_up", spec.heads * (spec.nope_width + spec.value_width), spec.kv_rank)
        key_up, value_up = up.unflatten(0, (spec.heads, -1)).split([spec.nope_width, spec.value_width], dim=1)
        self.key_up = key_up.contiguous()  # [heads, nope, latent]
        self.value_up = value_up.transpose(1, 2).contiguous()  # [heads, latent, value]
        self.output = Linear(weights, "output", hidden, spec.heads * spec.value_width)
        self.sinks = weights.vector("sinks", spec.heads) if spec.sinks else None
        self.indexer = None if index is None else TokenIndexer(index, hidden, layer, weights.scope("indexer"))

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        """x [N, hidden] (normed) -> [N, hidden]; writes this step's rows into the cache first."""
        spec = self.spec
        q_down, kv_down, *rest = self.entry(x)
        q_up, *index_query = self.queries(self.q_norm(q_down))
        self._write(kv_down, batch)
        if self.indexer is not None:
            batch.selected[self.layer] = self.indexer(x, index_query[0], rest[-1], batch)
        query = q_up.view(-1, spec.heads, spec.nope_width + spec.rope.width)
        q_nope, q_rope = query[..., : spec.nope_width], query[..., spec.nope_width :]
        q_latent = headwise_linear(q_nope, self.key_up)
        q_rope = rotate(spec.rope, q_rope, batch.rotation(spec.rope))
        rows = batch.cache.rows(self.layer, "latent", batch.selected[spec.index_source])
        mixed = sparse_attention(q_latent, q_rope, (rows,), spec.scale, self.sinks)
        heads = headwise_linear(mixed, self.value_up).flatten(1)
        if spec.output_gate:
            heads = heads * rest[0].sigmoid()
        return self.output(heads)

    def _write(self, kv_down: Tensor, batch: Batch) -> None:
        """Norm the latent, rotate the shared key, scatter both to this step's cache rows."""
        rope, norm = self.spec.rope, self.kv_norm
        write_latents(
            *batch.cache.latent_pools(self.layer), batch.token_slots, kv_down, norm.weight, norm.eps, batch.rotation(rope),
            rope.style == "interleaved",
        )  # fmt: skip
