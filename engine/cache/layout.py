"""What a model keeps per token and per conversation: the one table that paging, planning and saving read."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm, prod
from typing import Literal

import torch

from engine.model.spec import CompressedAttention, Indexer, LatentAttention, ModelSpec
from kernels.cache_rows import ENTRY, ENTRY_BYTES, ENTRY_ROPE, LATENT, LATENT_BYTES, LATENT_ROPE

PAGE_TOKENS = 64
INDEX_WIDTH = 128  # of packed index keys
Packing = Literal["plain", "latent", "entry", "index"]
# plain: `width` numbers of `dtype`; the others are FP8 rows of kernels/cache_rows, "latent" with the rotated key inside.


@dataclass(frozen=True)
class Pool:
    """Paged rows: one entry of `width` numbers stands for `tokens_per_entry` consecutive tokens of one layer."""

    layer: int
    name: str
    width: int
    tokens_per_entry: int
    dtype: torch.dtype
    packing: Packing = "plain"

    @property
    def row_shape(self) -> tuple[int, torch.dtype]:
        """Numbers and type of one entry as it is stored and saved."""
        if self.packing == "plain":
            return self.width, self.dtype
        return {"latent": LATENT_BYTES, "entry": ENTRY_BYTES, "index": self.width + 4}[self.packing], torch.uint8

    @property
    def entry_bytes(self) -> int:
        width, dtype = self.row_shape
        return width * dtype.itemsize


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


def declare_cache(spec: ModelSpec, dtype: torch.dtype, compact: bool = False) -> CacheLayout:
    """Derive the cache of a model from its layers; `dtype` is the element type of plain rows.

    compact: FP8 rows wherever the sizes are those the packed formats are made for, plain rows elsewhere.
    """
    pools: list[Pool] = []
    frontiers: list[Frontier] = []
    for number, layer in enumerate(spec.layers):
        attention = layer.attention
        if isinstance(attention, LatentAttention):
            packed = compact and (attention.kv_rank, attention.rope.width) == (LATENT, LATENT_ROPE)
            pools.append(Pool(number, "latent", attention.kv_rank, 1, dtype, "latent" if packed else "plain"))
            if not packed:
                pools.append(Pool(number, "rope", attention.rope.width, 1, dtype))
            if attention.indexer is not None:
                pools.append(
                    Pool(number, "index", attention.indexer.width, 1, dtype, _index(attention.indexer, compact))
                )
        else:
            _declare_compressed(number, attention, dtype, compact, pools, frontiers)
    page = lcm(PAGE_TOKENS, *(pool.tokens_per_entry * (PAGE_TOKENS if pool.name == "index" else 1) for pool in pools))
    return CacheLayout(page, tuple(pools), tuple(frontiers))


def _index(indexer: Indexer, compact: bool) -> Packing:
    return "index" if compact and indexer.width == INDEX_WIDTH else "plain"


def _declare_compressed(
    number: int,
    attention: CompressedAttention,
    dtype: torch.dtype,
    compact: bool,
    pools: list[Pool],
    frontiers: list[Frontier],
) -> None:
    packed = compact and (attention.width, attention.rope.width) == (ENTRY, ENTRY_ROPE)
    row = (ENTRY_BYTES, torch.uint8) if packed else (attention.width, dtype)
    frontiers.append(Frontier(number, "window", (attention.window_tokens, row[0]), row[1]))
    if attention.ratio == 0:
        return
    parts: list[tuple[str, int, Packing]] = [("entry", attention.width, "entry" if packed else "plain")]
    if attention.indexer is not None:
        parts.append(("index", attention.indexer.width, _index(attention.indexer, compact)))
    for name, width, packing in parts:
        pools.append(Pool(number, name, width, attention.ratio, dtype, packing))
        # A ring with values and gates of the newest tokens: the open window's, and with overlap those of the one before.
        windows = 2 if attention.overlap else 1
        shape = (windows * attention.ratio, 2, (2 if attention.overlap else 1) * width)
        frontiers.append(Frontier(number, f"{name}_frontier", shape, torch.float32))
