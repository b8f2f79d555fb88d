"""Inputs for kernel tests, awkward ones included, shared by every implementation of an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kernels.sparse_attention import Rows

SelectionCase = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int]


def random_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def selection(
    seed: int, heads: int, width: int, visible: list[int], k: int, page: int = 8, dtype: torch.dtype = torch.float32
) -> SelectionCase:
    """One query per entry of `visible`, each in a conversation of its own, over shuffled pages."""
    random = random_generator(seed)
    count, per = len(visible), -(-max(*visible, 1) // page)
    table = torch.randperm(count * per + 1, generator=random)[: count * per].view(count, per)
    queries = torch.randn(count, heads, width, generator=random).to(dtype)
    keys = torch.randn(count * per + 1, page, width, generator=random).to(dtype)
    weights = torch.randn(count, heads, generator=random)
    return queries, weights, keys, table, torch.arange(count), torch.tensor(visible), k


def selections(dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, SelectionCase]]:
    """Named cases: ordinary, short contexts, ties, zeros, negatives, infinities, NaN."""
    yield "ordinary", selection(0, 4, 32, [203, 61, 130], 16, dtype=dtype)
    yield "k of everything", selection(1, 3, 16, [40, 17], 40, dtype=dtype)
    yield "short", selection(2, 4, 16, [1, 5, 0], 16, dtype=dtype)
    yield "one token", selection(3, 1, 16, [1], 1, dtype=dtype)
    case = selection(4, 4, 16, [150, 99], 12, dtype=dtype)
    yield "all zero", (case[0], torch.zeros_like(case[1]), *case[2:])
    yield "negative", (case[0], -case[1].abs(), *case[2:])
    yield "mostly zero", (case[0], torch.where(case[1] == case[1].amax(), 1.0, 0.0), *case[2:])
    keys = case[2][:, :1].expand_as(case[2]).contiguous()
    yield "equal in pages", (*case[:2], keys, *case[3:])
    yield "all equal", (*case[:2], case[2][:1, :1].expand_as(case[2]).contiguous(), *case[3:])
    keys = case[2].clone()
    keys[1::2] = float("nan")
    yield "NaN keys", (*case[:2], keys, *case[3:])
    keys = case[2].clone()
    keys[:, ::3] = float("inf")
    yield "infinite keys", (*case[:2], keys, *case[3:])


AttentionCase = tuple[Tensor, Tensor | None, tuple[Rows, ...], float, Tensor | None]


def rows(random: torch.Generator, count: int, latent: int, rope: int, slots: Tensor, dtype: torch.dtype) -> Rows:
    return Rows(
        torch.randn(count, latent, generator=random).to(dtype),
        torch.randn(count, rope, generator=random).to(dtype) if rope else None,
        slots,
    )


def listed(random: torch.Generator, queries: int, width: int, count: int, used: list[int]) -> Tensor:
    """Row lists [queries, width]; query n uses used[n % len(used)] entries, -1 behind."""
    slots = torch.randint(count, (queries, width), generator=random)
    for n in range(queries):
        slots[n, used[n % len(used)] :] = -1
    return slots


def attentions(dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, AttentionCase]]:
    """Named cases: MLA and two-source shapes, padding, holes, queries without rows, NaN behind the padding."""
    random = random_generator(5)

    def case(
        n: int, heads: int, latent: int, rope: int, widths: list[tuple[int, list[int]]], sinks: bool
    ) -> AttentionCase:
        sources = tuple(rows(random, 50, latent, rope, listed(random, n, w, 50, used), dtype) for w, used in widths)
        q = torch.randn(n, heads, latent, generator=random).to(dtype)
        r = torch.randn(n, heads, rope, generator=random).to(dtype) if rope else None
        return q, r, sources, (latent + rope) ** -0.5 * 2, torch.randn(heads, generator=random) if sinks else None

    yield "latent and rope", case(3, 8, 64, 16, [(40, [40, 17, 1])], False)
    yield "sinks", case(2, 5, 32, 16, [(20, [20, 3])], True)
    yield "two sources", case(4, 16, 64, 0, [(16, [16, 2, 9, 1]), (24, [0, 24, 11, 3])], True)
    yield "no rows", case(3, 4, 32, 16, [(8, [0, 8, 0])], False)
    yield "no rows but sinks", case(2, 4, 32, 0, [(8, [0]), (8, [0])], True)
    yield "one row", case(1, 1, 32, 0, [(1, [1])], False)
    plain = case(3, 4, 32, 16, [(24, [24])], False)
    holes = plain[2][0].slots.clone()
    holes[:, ::3] = -1
    yield "holes", (*plain[:2], (plain[2][0]._replace(slots=holes),), *plain[3:])
    unread = case(2, 4, 32, 16, [(8, [5])], False)
    latent = unread[2][0].latent.clone()
    latent[~torch.isin(torch.arange(50), unread[2][0].slots)] = float("nan")
    yield "NaN in rows nobody lists", (*unread[:2], (unread[2][0]._replace(latent=latent),), *unread[3:])


def to(value: Any, device: str) -> Any:
    """Move every tensor of a nested tuple."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        moved = [to(v, device) for v in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
