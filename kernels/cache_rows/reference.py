"""Rows of the caches in plain torch: norm, rotation, packing to FP8, and writing to listed rows of a pool.

Norm and rotation are evaluated in float32 and rounded once, to what the pool holds. In packed rows a scale is a power of
two, the smallest with which the largest magnitude (at least 1e-4) of its group fits e4m3.

| row | bytes | layout |
|---|---|---|
| latent + rope | 656 | 512 e4m3 codes, 4 float32 scales (one per 128), 64 bfloat16 of the rotated key |
| window or compressed entry | 584 | 448 e4m3 codes, 64 bfloat16 (rotated, key and value), 7 e8m0 scales (per 64), 1 unused |
| index key | D + 4 | D e4m3 codes and one float32 scale; in a pool, a page's codes lie before its scales |
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.norm.reference import layer_norm, rms_norm
from kernels.rope.reference import rotate_half_split, rotate_interleaved

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


def write_latents(
    latent_pool: Tensor,
    rope_pool: Tensor | None,
    slots: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    rotation: Tensor,
    interleaved: bool,
) -> None:
    """RMS norm of the first C channels of x [N, C + R], rotation of the others, both written to rows of pools in place.

    latent_pool [..., C] and rope_pool [..., R], float32 or bfloat16; or latent_pool uint8 [..., 656] and no rope_pool.
    slots: int64 [N], flat rows of the pools; one below 0 is skipped. weight: float32 [C]. rotation: complex64 [N, R/2] of
    pairs side by side (interleaved) or R/2 apart. (DeepSeek-V2 section 2.1: what MLA caches of a token.)
    """
    kept = slots >= 0
    slots, x, rotation = slots[kept], x[kept].float(), rotation[kept]
    latent = rms_norm(x[:, : len(weight)], weight, eps)
    key = _rotated(x[:, len(weight) :], rotation, 0, interleaved)
    if rope_pool is None:
        latent_pool.flatten(0, -2)[slots] = pack_latent_rows(latent, key)
    else:
        latent_pool.flatten(0, -2)[slots] = latent.to(latent_pool.dtype)
        rope_pool.flatten(0, -2)[slots] = key.to(rope_pool.dtype)


def write_rows(
    pool: Tensor,
    slots: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    rotation: Tensor,
    first: int,
    interleaved: bool,
) -> None:
    """Norm of x [N, D], rotation of its R channels from `first` on, written to rows of a pool in place.

    pool: [..., D] of float32 or bfloat16; entries uint8 [..., 584]; or index keys uint8 [pages, page * (D + 4)].
    slots: int64 [N], flat rows of the pool; one below 0 is skipped. weight: float32 [D]; bias: float32 [D] for a layer
    norm, None for an RMS norm. rotation: complex64 [N, R/2] of pairs side by side (interleaved) or R/2 apart.
    """
    kept = slots >= 0
    slots, x, rotation = slots[kept], x[kept].float(), rotation[kept]
    x = rms_norm(x, weight, eps) if bias is None else layer_norm(x, weight, bias, eps)
    x = _rotated(x, rotation, first, interleaved)
    if pool.dtype != torch.uint8:
        pool.flatten(0, -2)[slots] = x.to(pool.dtype)
    elif pool.shape[-1] == ENTRY_BYTES:
        pool.flatten(0, -2)[slots] = pack_entry_rows(x)
    else:
        write_index_rows(pool, slots, pack_index_keys(x))


def _rotated(x: Tensor, rotation: Tensor, first: int, interleaved: bool) -> Tensor:
    """Rows [N, D] with the channels from `first` on rotated."""
    return (rotate_interleaved if interleaved else rotate_half_split)(x.unsqueeze(1), rotation, first).squeeze(1)


def pack_queries(x: Tensor, weights: Tensor, rotation: Tensor, first: int, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Index queries x [N, heads, D], rotated and in the precision of packed index keys: e4m3 codes [N, heads, D].

    A code counts scale times, a power of two per head. As it is positive it goes through the indexer's ReLU, so it is
    multiplied into the weights float32 [N, heads], which are returned too. rotation, first, interleaved: see `write_rows`.
    """
    turn = rotate_interleaved if interleaved else rotate_half_split
    codes, exponent = _quantized(turn(x.float(), rotation, first), x.shape[-1])
    return codes, weights * (exponent.squeeze(-1) << 23).view(torch.float32)
