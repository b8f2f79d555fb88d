"""Packed cache rows in FP8, in plain torch: packing, unpacking, and writing to listed rows of a pool.

A scale is a power of two, the smallest with which the largest magnitude (at least 1e-4) of its group fits e4m3.

| row | bytes | layout |
|---|---|---|
| latent + rope | 656 | 512 e4m3 codes, 4 float32 scales (one per 128), 64 bfloat16 of the rotated key |
| window or compressed entry | 584 | 448 e4m3 codes, 64 bfloat16 (rotated, key and value), 7 e8m0 scales (per 64), 1 unused |
| index key | D + 4 | D e4m3 codes and one float32 scale; in a pool, a page's codes lie before its scales |
"""

from __future__ import annotations

import torch
from torch import Tensor

LATENT_BYTES, LATENT, LATENT_ROPE, LATENT_GROUP = 656, 512, 64, 128
ENTRY_BYTES, ENTRY, ENTRY_ROPE, ENTRY_GROUP = 584, 512, 64, 64
_ENTRY_CODES = ENTRY - ENTRY_ROPE
_FP8_MAX, _SMALLEST = 448.0, 1e-4


def _quantized(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """e4m3 codes [N, D] and the biased exponents int32 [N, D / group] of the power-of-two scales."""
    grouped = x.float().unflatten(-1, (-1, group))
    wanted = grouped.abs().amax(-1).clamp(min=_SMALLEST) / _FP8_MAX
    bits = wanted.view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    scale = (exponent << 23).view(torch.float32)
    codes = (grouped / scale.unsqueeze(-1)).clamp(-_FP8_MAX, _FP8_MAX).to(torch.float8_e4m3fn)
    return codes.flatten(-2), exponent


def pack_latent_rows(latent: Tensor, rope: Tensor) -> Tensor:
    """latent [N, 512] and rotated key [N, 64] to uint8 [N, 656]."""
    codes, exponent = _quantized(latent, LATENT_GROUP)
    parts = (codes, (exponent << 23).view(torch.float32), rope.to(torch.bfloat16))
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=1)


def unpack_latent_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """uint8 [N, 656] to latent float32 [N, 512] and rotated key float32 [N, 64]."""
    codes, scale, rope = rows.split([LATENT, LATENT // LATENT_GROUP * 4, LATENT_ROPE * 2], dim=1)
    values = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (-1, LATENT_GROUP))
    latent = values * scale.contiguous().view(torch.float32).unsqueeze(-1)
    return latent.flatten(-2), rope.contiguous().view(torch.bfloat16).float()


def pack_entry_rows(entry: Tensor) -> Tensor:
    """Entries [N, 512], the last 64 channels rotated, to uint8 [N, 584]."""
    codes, exponent = _quantized(entry[:, :_ENTRY_CODES], ENTRY_GROUP)
    scale = torch.cat([exponent, torch.zeros_like(exponent[:, :1])], dim=1).to(torch.uint8)
    parts = (codes, entry[:, _ENTRY_CODES:].to(torch.bfloat16), scale)
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], dim=1)


def unpack_entry_rows(rows: Tensor) -> Tensor:
    """uint8 [N, 584] to entries float32 [N, 512]."""
    codes, rope, scale = rows.split([_ENTRY_CODES, ENTRY_ROPE * 2, 8], dim=1)
    values = codes.contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (-1, ENTRY_GROUP))
    factor = (scale[:, :7].to(torch.int32) << 23).view(torch.float32)
    return torch.cat(
        [(values * factor.unsqueeze(-1)).flatten(-2), rope.contiguous().view(torch.bfloat16).float()], dim=1
    )


def write_latent_rows(pool: Tensor, slots: Tensor, latent: Tensor, rope: Tensor) -> None:
    """Pack and write rows: pool uint8 [rows, 656] in place at slots int64 [N]; a slot below 0 is skipped."""
    kept = slots >= 0
    pool[slots[kept]] = pack_latent_rows(latent[kept], rope[kept])


def write_entry_rows(pool: Tensor, slots: Tensor, entry: Tensor) -> None:
    """Pack and write entries: pool uint8 [rows, 584] in place at slots int64 [N]; a slot below 0 is skipped."""
    kept = slots >= 0
    pool[slots[kept]] = pack_entry_rows(entry[kept])


def pack_index_keys(keys: Tensor) -> Tensor:
    """Index keys [N, D] to uint8 [N, D + 4]: e4m3 codes, then one float32 power-of-two scale."""
    codes, exponent = _quantized(keys, keys.shape[1])
    return torch.cat([codes.view(torch.uint8), (exponent << 23).view(torch.float32).view(torch.uint8)], dim=1)


def _index_parts(pool: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Views of all codes [pages, page, D] and all scales [pages, page, 4] of a pool of packed index keys."""
    page = pool.shape[1] // (width + 4)
    return pool[:, : page * width].unflatten(1, (page, width)), pool[:, page * width :].unflatten(1, (page, 4))


def read_index_rows(pool: Tensor, slots: Tensor, width: int) -> Tensor:
    """Packed keys uint8 [N, D + 4] at slots int64 [N] of a pool uint8 [pages, page * (D + 4)] (codes of a page first)."""
    codes, scales = _index_parts(pool, width)
    page, entry = slots // codes.shape[1], slots % codes.shape[1]
    return torch.cat([codes[page, entry], scales[page, entry]], dim=1)


def write_index_rows(pool: Tensor, slots: Tensor, rows: Tensor) -> None:
    """Inverse of `read_index_rows`, in place; a slot below 0 is skipped."""
    kept = slots >= 0
    slots, rows = slots[kept], rows[kept]
    codes, scales = _index_parts(pool, rows.shape[1] - 4)
    page, entry = slots // codes.shape[1], slots % codes.shape[1]
    codes[page, entry], scales[page, entry] = rows[:, :-4], rows[:, -4:]


def write_index_keys(pool: Tensor, slots: Tensor, keys: Tensor) -> None:
    """Pack and write index keys [N, D] to a pool uint8 [pages, page * (D + 4)] at slots int64 [N]."""
    write_index_rows(pool, slots, pack_index_keys(keys))
