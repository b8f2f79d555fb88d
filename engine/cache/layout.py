"""What a model keeps per token and per conversation: the one table that paging, planning and saving read."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm, prod

import torch

from engine.model.spec import CompressedAttention, LatentAttention, ModelSpec

PAGE_TOKENS = 64


@dataclass(frozen=True)
class Pool:
    """Paged rows: one entry of `width` numbers stands for `tokens_per_entry` consecutive tokens of one layer."""

    layer: int
    name: str
    width: int
    tokens_per_entry: int
    dtype: torch.dtype

    @property
    def entry_bytes(self) -> int:
        return self.width * self.dtype.itemsize


@dataclass(frozen=True)
class Frontier:
    """Fixed-size state of one conversation in one layer that cannot be addressed by position (windows, compressors)."""

    layer: int
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class CacheLayout:
    """All pools and frontiers of a model. A page covers `page_tokens` tokens in every pool."""

    page_tokens: int
    pools: tuple[Pool, ...]
    frontiers: tuple[Frontier, ...]

    @property
    def page_bytes(self) -> int:
        return sum(p.entry_bytes * (self.page_tokens // p.tokens_per_entry) for p in self.pools)

    @property
    def bytes_per_token(self) -> float:
        return self.page_bytes / self.page_tokens

    @property
    def bytes_per_conversation(self) -> int:
        return sum(f.nbytes for f in self.frontiers)

    @property
    def rewindable(self) -> bool:
        """Whether a conversation can be cut back to any token; with frontiers only to a snapshot of them."""
        return not self.frontiers


def declare_cache(spec: ModelSpec, dtype: torch.dtype) -> CacheLayout:
    """Derive the cache of a model from its layers; `dtype` is the element type of all rows."""
    pools: list[Pool] = []
    frontiers: list[Frontier] = []
    for number, layer in enumerate(spec.layers):
        attention = layer.attention
        if isinstance(attention, LatentAttention):
            pools.append(Pool(number, "latent", attention.kv_rank, 1, dtype))
            pools.append(Pool(number, "rope", attention.rope.width, 1, dtype))
            if attention.indexer is not None:
                pools.append(Pool(number, "index", attention.indexer.width, 1, dtype))
        else:
            _declare_compressed(number, attention, dtype, pools, frontiers)
    page = lcm(PAGE_TOKENS, *(pool.tokens_per_entry * (PAGE_TOKENS if pool.name == "index" else 1) for pool in pools))
    return CacheLayout(page, tuple(pools), tuple(frontiers))


def _declare_compressed(
    number: int, attention: CompressedAttention, dtype: torch.dtype, pools: list[Pool], frontiers: list[Frontier]
) -> None:
    frontiers.append(Frontier(number, "window", (attention.window_tokens, attention.width), dtype))
    if attention.ratio == 0:
        return
    parts = [("entry", attention.width)]
    if attention.indexer is not None:
        parts.append(("index", attention.indexer.width))
    for name, width in parts:
        pools.append(Pool(number, name, width, attention.ratio, dtype))
        # A ring with values and gates of the newest tokens: the open window's, and with overlap those of the one before.
        windows = 2 if attention.overlap else 1
        shape = (windows * attention.ratio, 2, (2 if attention.overlap else 1) * width)
        frontiers.append(Frontier(number, f"{name}_frontier", shape, torch.float32))
