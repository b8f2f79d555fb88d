"""Index scores and exact top-k over paged index keys, in plain torch. Deterministic: ties go to the lowest position."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_SCORE_BUFFER = 1 << 21  # float32 products held at once; small enough to stay in a CPU's cache


def index_select(
    queries: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, sequence: Tensor, visible: Tensor, k: int
) -> Tensor:
    """Positions of the k best cached entries of each query.

    score(n, p) = sum_h weights[n, h] * relu(queries[n, h] . key_p) for p < visible[n]   (DeepSeek-V3.2, "lightning indexer")

    queries [N, heads, D]; weights float32 [N, heads] (all scale factors folded in); keys [pages, page, D], one pool
    row per entry, or packed FP8: uint8 [pages, page * (D + 4)], see `unpack_index_keys`; page_table int [S, max_pages];
    sequence int [N], the page-table row of each query; visible int [N], how many entries of its sequence it may see.
    Returns int32 [N, K], min(k, longest visible) <= K <= k, ascending positions, -1 behind the last one.
    """
    return select_by_blocks(queries, weights, keys, page_table, sequence, visible, k, top_positions)


def select_by_blocks(
    queries: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    sequence: Tensor,
    visible: Tensor,
    k: int,
    top: Callable[[Tensor, Tensor, int], Tensor],
) -> Tensor:
    """`index_select` with scores of a bounded number of queries at once; `top` picks as `top_positions` does."""
    if keys.dtype == torch.uint8:
        keys = unpack_index_keys(keys, queries.shape[2])
    width = min(k, int(visible.max())) if visible.numel() else 0
    chosen = torch.full((queries.shape[0], width), -1, dtype=torch.int32, device=queries.device)
    for s in range(page_table.shape[0]):
        rows = (sequence == s).nonzero().squeeze(1)
        entries = int(visible[rows].max()) if rows.numel() else 0
        if entries == 0:
            continue
        pages = -(-entries // keys.shape[1])
        own = keys[page_table[s, :pages].long()].flatten(0, 1)[:entries]
        block = max(1, _SCORE_BUFFER // (queries.shape[1] * entries))
        for part in rows.split(block):
            scores = index_scores(queries[part], weights[part], own)
            picked = top(scores, visible[part], k)
            chosen[part, : picked.shape[1]] = picked
    return chosen


def index_key_page_bytes(width: int, page: int) -> int:
    """Bytes of a page of packed index keys: e4m3 codes and one float32 scale per entry."""
    return page * (width + 4)


def unpack_index_keys(pool: Tensor, width: int) -> Tensor:
    """Packed FP8 keys uint8 [pages, bytes] to float32 [pages, page, width].

    A page holds the e4m3 codes of all its entries, [page, width], then one float32 scale per entry, [page].
    """
    page = pool.shape[1] // index_key_page_bytes(width, 1)
    codes = pool[:, : page * width].reshape(-1, page, width).view(torch.float8_e4m3fn).float()
    return codes * pool[:, page * width :].contiguous().view(torch.float32).unsqueeze(-1)


def index_scores(queries: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """sum_h weights[n, h] relu(queries[n, h] . keys[t]) in float32; [N, heads, D], [N, heads], [T, D] -> [N, T]."""
    products = (queries.flatten(0, 1).float() @ keys.float().T).relu_()
    return torch.bmm(weights.unsqueeze(1), products.unflatten(0, queries.shape[:2])).squeeze(1)


def top_positions(scores: Tensor, visible: Tensor, k: int) -> Tensor:
    """Exact top-k of each row among its first `visible` columns: float32 [N, T], int [N] -> int32 [N, min(k, T)].

    Ascending columns, -1 behind the last; equal scores prefer the lower column; NaN counts as -inf.
    """
    columns = torch.arange(scores.shape[1], device=scores.device)
    hidden = columns >= visible.unsqueeze(1)
    if scores.shape[1] <= k:
        return columns.expand_as(scores).masked_fill(hidden, -1).to(torch.int32)
    scores = scores.masked_fill(hidden | scores.isnan(), float("-inf"))
    top, picked = scores.topk(k, dim=-1)
    threshold = top[:, -1:]
    tied = (scores >= threshold).sum(-1) > k
    if bool(tied.any()):  # torch.topk picks arbitrarily among equals: redo those rows in a defined order
        picked[tied] = scores[tied].sort(dim=-1, descending=True, stable=True).indices[:, :k]
    picked = picked.masked_fill(picked >= visible.unsqueeze(1), scores.shape[1]).sort(-1).values
    return picked.masked_fill(picked == scores.shape[1], -1).to(torch.int32)
