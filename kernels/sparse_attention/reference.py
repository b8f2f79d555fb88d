"""Multi-query attention over an explicit list of cache rows per query, with sinks, in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels.cache_rows.reference import ENTRY_BYTES, unpack_entry_rows, unpack_latent_rows

_GATHER_BUFFER = 1 << 22  # gathered float32 numbers held at once


class Rows(NamedTuple):
    """Cache rows that queries read: `latent` is key and value, `rope` (if any) is a further part of the key.

    A uint8 `latent` holds packed rows (see kernels/cache_rows): 656 bytes include the rope part, 584 bytes have none.
    """

    latent: Tensor  # [rows, C]
    rope: Tensor | None  # [rows, R]
    slots: Tensor  # int [N, K], row numbers; -1 is no row


def sparse_attention(
    q_latent: Tensor, q_rope: Tensor | None, sources: tuple[Rows, ...], scale: float, sinks: Tensor | None
) -> Tensor:
    """One softmax over all listed rows of all sources; one key head shared by all query heads.

    logit(n, h, j) = scale * (q_latent[n, h] . latent_j + q_rope[n, h] . rope_j)
    out(n, h) = sum_j exp(logit_j) latent_j / (sum_j exp(logit_j) + exp(sink_h))

    The sink is a learned logit that is not scaled. A query without any row gives zeros.
    q_latent [N, H, C]; q_rope [N, H, R] or None; sinks float32 [H] or None. Returns [N, H, C] in q_latent's dtype.
    """
    width = sum(source.slots.shape[1] for source in sources) * q_latent.shape[-1]
    block = max(1, _GATHER_BUFFER // max(width, 1))
    parts = [
        _attend(q, r, tuple(s._replace(slots=p) for s, p in zip(sources, slots, strict=True)), scale, sinks)
        for q, r, *slots in zip(
            q_latent.split(block),
            q_rope.split(block) if q_rope is not None else [None] * -(-q_latent.shape[0] // block),
            *(source.slots.split(block) for source in sources),
            strict=True,
        )
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _gathered(source: Rows) -> tuple[Tensor, Tensor | None]:
    """Listed rows [N, K, C] and rope parts [N, K, R] in float32; row 0 stands in for missing ones."""
    latent, rope, slots = source
    index = slots.clamp(min=0).flatten().long()
    rows = latent.index_select(0, index)
    if latent.dtype != torch.uint8:
        keys = None if rope is None else rope.index_select(0, index).unflatten(0, slots.shape).float()
        return rows.unflatten(0, slots.shape).float(), keys
    if latent.shape[1] == ENTRY_BYTES:
        return unpack_entry_rows(rows).unflatten(0, slots.shape), None
    values, keys = unpack_latent_rows(rows)
    return values.unflatten(0, slots.shape), keys.unflatten(0, slots.shape)


def _attend(
    q_latent: Tensor, q_rope: Tensor | None, sources: tuple[Rows, ...], scale: float, sinks: Tensor | None
) -> Tensor:
    q, q_pe = q_latent.float(), None if q_rope is None else q_rope.float()
    values, logits = [], []
    for source in sources:
        slots = source.slots
        rows, keys = _gathered(source)
        part = torch.bmm(q, rows.transpose(1, 2))
        if keys is not None and q_pe is not None:
            part += torch.bmm(q_pe, keys.transpose(1, 2))
        missing = (slots < 0).unsqueeze(1)
        logits.append((part * scale).masked_fill_(missing, float("-inf")))
        values.append(rows.masked_fill(missing.transpose(1, 2), 0.0) if bool(missing.any()) else rows)
    every = torch.cat(logits, dim=-1) if len(logits) > 1 else logits[0]
    peak = (
        every.amax(-1, keepdim=True).clamp(min=-1e30) if every.shape[-1] else every.new_full((*q.shape[:2], 1), -1e30)
    )
    if sinks is not None:
        peak = torch.maximum(peak, sinks.view(1, -1, 1))
    weights = (every - peak).exp_()
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + (sinks.view(1, -1, 1) - peak).exp_()
    mixed = torch.bmm(weights, torch.cat(values, dim=1) if len(values) > 1 else values[0])
    return (mixed / total.clamp(min=1e-30)).to(q_latent.dtype)
