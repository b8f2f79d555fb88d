"""Hyper-connections on a GPU: projection split over programs, then gates, Sinkhorn and mix in one launch, then the update.

Sizes: T tokens, n streams (a power of two), H hidden, F = n H columns of the projection, Z its rows, S splits of F.
Many tokens leave the projection to torch's matrix product, and the rest is the same.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import require_gpu

_FEW = 16  # tokens up to which the projection is split over programs
_BLOCK = 1024


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _project_kernel(
    streams_ptr,  # [T, F]
    fn_ptr,  # float32 [Z, F]
    parts_ptr,  # float32 [T, S, ZP]; place Z holds the sum of squares
    COLUMNS: tl.constexpr,
    Z: tl.constexpr,
    ZP: tl.constexpr,
    S: tl.constexpr,
    BLOCK: tl.constexpr,
):
    t, s = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, row = s * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ZP)
    inside = column < COLUMNS
    x = tl.load(streams_ptr + t * COLUMNS + column, mask=inside, other=0.0).to(tl.float32)
    weights = tl.load(
        fn_ptr + row[:, None] * COLUMNS + column[None, :], mask=(row < Z)[:, None] & inside[None, :], other=0.0
    )
    z = tl.sum(weights * x[None, :], 1)
    tl.store(parts_ptr + (t * S + s) * ZP + row, tl.where(row == Z, tl.sum(x * x, 0), z), mask=row <= Z)


@triton.jit
def _gates_kernel(
    streams_ptr,  # [T, n, H]
    parts_ptr,  # float32 [T, S, ZP], or [T, Z] already normed with S = 0
    scale_ptr,  # float32 [Z]
    base_ptr,  # float32 [Z]
    mixed_ptr,  # [T, H]
    post_ptr,  # float32 [T, n]
    comb_ptr,  # float32 [T, n, n]
    norm_eps,
    eps,
    magnitude,
    H: tl.constexpr,
    N: tl.constexpr,
    Z: tl.constexpr,
    ZP: tl.constexpr,
    S: tl.constexpr,
    SP: tl.constexpr,
    POST: tl.constexpr,
    COMB: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """POST: 0 none, 1 magnitude * sigmoid + eps, 2 magnitude * sigmoid. COMB: Sinkhorn rounds, 0 for none."""
    t = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N), tl.arange(0, N)
    if S > 0:
        s = tl.arange(0, SP)
        part = parts_ptr + (t * S + s) * ZP
        square = tl.sum(tl.load(part + Z, mask=s < S, other=0.0), 0)
        norm = tl.rsqrt(square / (N * H) + norm_eps)
        pre = tl.sum(tl.load(part[:, None] + i[None, :], mask=(s < S)[:, None], other=0.0), 0) * norm
    else:
        part = parts_ptr + t * Z
        norm = 1.0
        pre = tl.load(part + i)
    pre = _sigmoid(pre * tl.load(scale_ptr + i) + tl.load(base_ptr + i)) + eps
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < H
    x = tl.load(streams_ptr + (t * N + i)[:, None] * H + column[None, :], mask=inside[None, :], other=0.0).to(
        tl.float32
    )
    mixed = tl.sum(x * pre[:, None], 0)
    tl.store(mixed_ptr + t * H + column, mixed.to(mixed_ptr.dtype.element_ty), mask=inside)
    if (POST > 0) & (tl.program_id(1) == 0):
        if S > 0:
            post = tl.sum(tl.load(part[:, None] + N + i[None, :], mask=(s < S)[:, None], other=0.0), 0) * norm
        else:
            post = tl.load(part + N + i)
        post = _sigmoid(post * tl.load(scale_ptr + N + i) + tl.load(base_ptr + N + i)) * magnitude
        if POST == 1:
            post = post + eps
        tl.store(post_ptr + t * N + i, post)
    if (COMB > 0) & (tl.program_id(1) == 0):
        at = 2 * N + i[:, None] * N + j[None, :]
        if S > 0:
            comb = tl.zeros([N, N], tl.float32)
            for k in range(S):
                comb += tl.load(parts_ptr + (t * S + k) * ZP + at)
            comb = comb * norm
        else:
            comb = tl.load(part + at)
        comb = comb * tl.load(scale_ptr + at) + tl.load(base_ptr + at)
        comb = tl.exp(comb - tl.max(comb, 1)[:, None])
        comb = comb / tl.sum(comb, 1)[:, None] + eps
        comb = comb / (tl.sum(comb, 0)[None, :] + eps)
        for _ in range(COMB - 1):
            comb = comb / (tl.sum(comb, 1)[:, None] + eps)
            comb = comb / (tl.sum(comb, 0)[None, :] + eps)
        tl.store(comb_ptr + t * (N * N) + i[:, None] * N + j[None, :], comb)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _update_kernel(
    streams_ptr,  # [T, n, H]
    post_ptr,  # float32 [T, n]
    comb_ptr,  # float32 [T, n, n]
    output_ptr,  # [T, H]
    out_ptr,  # [T, n, H]
    H: tl.constexpr,
    N: tl.constexpr,
    COMB: tl.constexpr,
    BLOCK: tl.constexpr,
):
    t = tl.program_id(0).to(tl.int64)
    column, j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, N)
    inside = column < H
    post = tl.load(post_ptr + t * N + j)
    y = tl.load(output_ptr + t * H + column, mask=inside, other=0.0).to(tl.float32)
    acc = post[:, None] * y[None, :]
    if COMB:
        for i in tl.static_range(N):
            x = tl.load(streams_ptr + (t * N + i) * H + column, mask=inside, other=0.0).to(tl.float32)
            acc += tl.load(comb_ptr + t * (N * N) + i * N + j)[:, None] * x[None, :]
    else:
        at = (t * N + j)[:, None] * H + column[None, :]
        acc += tl.load(streams_ptr + at, mask=inside[None, :], other=0.0).to(tl.float32)
    at = (t * N + j)[:, None] * H + column[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside[None, :])


def _gates(
    streams: Tensor,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    norm_eps: float,
    eps: float,
    magnitude: float,
    post: int,
    comb: int,
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, n, hidden = streams.shape
    rows, columns = fn.shape
    streams = streams.contiguous()
    mixed = torch.empty(tokens, hidden, dtype=streams.dtype, device=streams.device)
    gate = torch.empty(tokens, n, dtype=torch.float32, device=streams.device)
    matrix = torch.empty(tokens, n, n, dtype=torch.float32, device=streams.device)
    if tokens == 0:
        return mixed, gate, matrix
    padded = triton.next_power_of_2(rows + 1)
    splits = triton.cdiv(columns, _BLOCK) if tokens <= _FEW else 0
    if splits:
        parts = torch.empty(tokens, splits, padded, dtype=torch.float32, device=streams.device)
        _project_kernel[(tokens, splits)](
            streams, fn, parts, COLUMNS=columns, Z=rows, ZP=padded, S=splits, BLOCK=_BLOCK, num_warps=4
        )  # fmt: skip
    else:
        parts = F.linear(F.rms_norm(streams.flatten(1).float(), (columns,), None, norm_eps), fn)
    block = min(_BLOCK, triton.next_power_of_2(hidden))
    _gates_kernel[(tokens, triton.cdiv(hidden, block))](
        streams, parts, scale, base, mixed, gate, matrix, norm_eps, eps, magnitude, H=hidden, N=n, Z=rows, ZP=padded,
        S=splits, SP=triton.next_power_of_2(max(splits, 1)), POST=post, COMB=comb, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return mixed, gate, matrix


def _update(streams: Tensor, post: Tensor, comb: Tensor | None, output: Tensor) -> Tensor:
    tokens, n, hidden = streams.shape
    streams, output = streams.contiguous(), output.contiguous()
    out = torch.empty_like(streams)
    if tokens:
        block = min(_BLOCK, triton.next_power_of_2(hidden))
        _update_kernel[(tokens, triton.cdiv(hidden, block))](
            streams, post.contiguous(), post if comb is None else comb.contiguous(), output, out, H=hidden, N=n,
            COMB=comb is not None, BLOCK=block, num_warps=4,
        )  # fmt: skip
    return out


def ihc_gates(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float, magnitude: float
) -> tuple[Tensor, Tensor]:
    """See the reference."""
    mixed, post, _ = _gates(streams, fn, scale, base, norm_eps, eps, magnitude, 1, 0)
    return mixed, post


def ihc_update(streams: Tensor, post: Tensor, output: Tensor) -> Tensor:
    """See the reference."""
    return _update(streams, post, None, output)


def mhc_gates(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See the reference."""
    return _gates(streams, fn, scale, base, norm_eps, eps, 2.0, 2, iterations)


def mhc_update(streams: Tensor, post: Tensor, comb: Tensor, output: Tensor) -> Tensor:
    """See the reference."""
    return _update(streams, post, comb, output)


def collapse(streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, norm_eps: float, eps: float) -> Tensor:
    """See the reference."""
    return _gates(streams, fn, scale, base, norm_eps, eps, 0.0, 0, 0)[0]
