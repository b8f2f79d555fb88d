"""Packed FP8 cache rows: 656 bytes for a latent with its rotated key, 584 for a window or compressed entry."""

from torch import Tensor

from kernels.cache_rows.reference import (
    ENTRY_BYTES,
    LATENT_BYTES,
    pack_entry_rows,
    pack_latent_rows,
    unpack_entry_rows,
    unpack_latent_rows,
)
from kernels.choose import Case, operator

__all__ = [
    "ENTRY_BYTES",
    "LATENT_BYTES",
    "pack_entry_rows",
    "pack_latent_rows",
    "unpack_entry_rows",
    "unpack_latent_rows",
    "write_entry_rows",
    "write_latent_rows",
]


def _key(pool: Tensor, *_: object) -> Case:
    return Case(pool.device.type, pool.dtype)


write_entry_rows = operator("write_entry_rows", _key, __name__, "triton")
write_latent_rows = operator("write_latent_rows", _key, __name__, "triton")
