"""Rows of the caches: norm, rotation and storing in one call, plain or packed to FP8.

Packed rows have 656 bytes for a latent with its rotated key, 584 for an entry, 132 for an index key.
"""

from torch import Tensor

from kernels.cache_rows.reference import (
    ENTRY,
    ENTRY_BYTES,
    ENTRY_ROPE,
    LATENT,
    LATENT_BYTES,
    LATENT_ROPE,
    pack_latent_rows,
    read_index_rows,
    write_index_rows,
)
from kernels.choose import Case, operator

__all__ = [
    "ENTRY",
    "ENTRY_BYTES",
    "ENTRY_ROPE",
    "LATENT",
    "LATENT_BYTES",
    "LATENT_ROPE",
    "pack_latent_rows",
    "pack_queries",
    "read_index_rows",
    "write_index_rows",
    "write_latents",
    "write_rows",
]


def _latents_key(pool: Tensor, rope_pool: Tensor | None, slots: Tensor, x: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype, pool.dtype)


def _rows_key(pool: Tensor, slots: Tensor, x: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype, pool.dtype)


def _queries_key(x: Tensor, *_: object) -> Case:
    return Case(x.device.type, x.dtype)


write_latents = operator("write_latents", _latents_key, __name__, "triton", "cpu")
write_rows = operator("write_rows", _rows_key, __name__, "triton", "cpu")
pack_queries = operator("pack_queries", _queries_key, __name__, "triton")
