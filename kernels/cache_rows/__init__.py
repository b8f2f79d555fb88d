"""Packed FP8 cache rows: 656 bytes for a latent with its rotated key, 584 for an entry, 132 for an index key."""

from torch import Tensor

from kernels.cache_rows.reference import (
    ENTRY,
    ENTRY_BYTES,
    ENTRY_ROPE,
    LATENT,
    LATENT_BYTES,
    LATENT_ROPE,
    pack_entry_rows,
    pack_index_keys,
    pack_latent_rows,
    read_index_rows,
    unpack_entry_rows,
    unpack_latent_rows,
    write_index_keys,
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
    "pack_entry_rows",
    "pack_index_keys",
    "pack_latent_rows",
    "read_index_rows",
    "unpack_entry_rows",
    "unpack_latent_rows",
    "write_entry_rows",
    "write_index_keys",
    "write_index_rows",
    "write_latent_rows",
]


def _key(pool: Tensor, *_: object) -> Case:
    return Case(pool.device.type, pool.dtype)


write_entry_rows = operator("write_entry_rows", _key, __name__, "triton")
write_latent_rows = operator("write_latent_rows", _key, __name__, "triton")
