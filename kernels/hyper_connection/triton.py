"""Hyper-connections on a GPU in two launches: update and projection spread over programs, then gates, mix and norm.

Sizes: T tokens, n streams (a power of two), H hidden, M columns of the mix that is pending (0 for none), Z rows of the
projection, S splits of H. Many tokens leave the projection to torch's matrix product, and the rest is the same.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import require_gpu
from kernels.hyper_connection.kinds import operators_of

_FEW = 16  # tokens up to which the projection is split over programs
_SPLIT = 64  # columns of each stream per program that also projects: short ones spread one token over the GPU
_BLOCK = 1024  # columns of each stream per program that only updates


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _update_kernel(
    streams_ptr,  # [T, n, H]
    mix_ptr,  # float32 [T, M]: output gates, and for mHC comb [n, n]; read if M > 0
    output_ptr,  # [T, H], read if M > 0
    settled_ptr,  # [T, n, H], written if M > 0
    fn_ptr,  # float32 [Z, n, H]
    parts_ptr,  # float32 [T, S, ZP], written if Z > 0; place Z holds the sum of squares
    H: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    Z: tl.constexpr,
    ZP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    t, s = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, j = s * BLOCK + tl.arange(0, BLOCK), tl.arange(0, N)
    inside = column < H
    place = j[:, None] * H + column[None, :]
    at = t * (N * H) + place
    if Z > 0:  # asked for first: the update's loads and sums hide its way
        row = tl.arange(0, ZP)
        weights = tl.load(
            fn_ptr + row[:, None, None] * (N * H) + place[None, :, :],
            mask=(row < Z)[:, None, None] & inside[None, None, :],
            other=0.0,
        )
    if M > N:
        x = tl.zeros([N, BLOCK], tl.float32)
        for i in tl.static_range(N):
            one = tl.load(streams_ptr + (t * N + i) * H + column, mask=inside, other=0.0).to(tl.float32)
            x += tl.load(mix_ptr + t * M + N + i * N + j)[:, None] * one[None, :]
    else:
        x = tl.load(streams_ptr + at, mask=inside[None, :], other=0.0).to(tl.float32)
    if M > 0:
        y = tl.load(output_ptr + t * H + column, mask=inside, other=0.0).to(tl.float32)
        x += tl.load(mix_ptr + t * M + j)[:, None] * y[None, :]
        settled = x.to(settled_ptr.dtype.element_ty)
        tl.store(settled_ptr + at, settled, mask=inside[None, :])
        x = settled.to(tl.float32)
    if Z > 0:
        z = tl.sum(tl.sum(weights * x[None, :, :], 2), 1)
        square = tl.sum(tl.sum(x * x, 1), 0)
        part = parts_ptr + (t * tl.num_programs(1) + s) * ZP
        tl.store(part + row, tl.where(row == Z, square, z), mask=row <= Z)


@triton.jit
def _enter_kernel(
    streams_ptr,  # [T, n, H]
    parts_ptr,  # float32 [T, S, ZP], or [T, Z] already normed with S = 0
    scale_ptr,  # float32 [Z]
    base_ptr,  # float32 [Z]
    weight_ptr,  # float32 [H]
    x_ptr,  # [T, H]
    mix_ptr,  # float32 [T, Z - n]
    norm_eps,
    eps,
    magnitude,
    post_eps,
    H: tl.constexpr,
    HP: tl.constexpr,
    N: tl.constexpr,
    Z: tl.constexpr,
    ZP: tl.constexpr,
    S: tl.constexpr,
    SP: tl.constexpr,
    ITERATIONS: tl.constexpr,  # of Sinkhorn
):
    """One token: Z = n only mixes (collapse), 2n also gives post = magnitude sigmoid + post_eps, n(n + 2) comb too."""
    t = tl.program_id(0).to(tl.int64)
    i, j, s, column = tl.arange(0, N), tl.arange(0, N), tl.arange(0, SP), tl.arange(0, HP)
    inside = column < H
    at = (t * N + i)[:, None] * H + column[None, :]
    streams = tl.load(streams_ptr + at, mask=inside[None, :], other=0.0)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0)
    if S > 0:
        part = parts_ptr + (t * S + s) * ZP
        norm = tl.rsqrt(tl.sum(tl.load(part + Z, mask=s < S, other=0.0), 0) / (N * H) + norm_eps)
        pre = tl.sum(tl.load(part[:, None] + i[None, :], mask=(s < S)[:, None], other=0.0), 0) * norm
    else:
        part = parts_ptr + t * Z
        norm = 1.0
        pre = tl.load(part + i)
    pre = _sigmoid(pre * tl.load(scale_ptr + i) + tl.load(base_ptr + i)) + eps
    x = tl.sum(streams.to(tl.float32) * pre[:, None], 0)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / H + norm_eps) * weight
    tl.store(x_ptr + t * H + column, x.to(x_ptr.dtype.element_ty), mask=inside)
    if Z > N:
        if S > 0:
            post = tl.sum(tl.load(part[:, None] + N + i[None, :], mask=(s < S)[:, None], other=0.0), 0) * norm
        else:
            post = tl.load(part + N + i)
        post = _sigmoid(post * tl.load(scale_ptr + N + i) + tl.load(base_ptr + N + i)) * magnitude + post_eps
        tl.store(mix_ptr + t * (Z - N) + i, post)
    if Z > 2 * N:
        place = 2 * N + i[:, None] * N + j[None, :]
        if S > 0:
            known = (s < S)[:, None, None]
            comb = tl.sum(tl.load(part[:, None, None] + place[None, :, :], mask=known, other=0.0), 0) * norm
        else:
            comb = tl.load(part + place)
        comb = comb * tl.load(scale_ptr + place) + tl.load(base_ptr + place)
        comb = tl.exp(comb - tl.max(comb, 1)[:, None])
        comb = comb / tl.sum(comb, 1)[:, None] + eps
        comb = comb / (tl.sum(comb, 0)[None, :] + eps)
        for _ in range(ITERATIONS - 1):
            comb = comb / (tl.sum(comb, 1)[:, None] + eps)
            comb = comb / (tl.sum(comb, 0)[None, :] + eps)
        tl.store(mix_ptr + t * (Z - N) + place - N, comb)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


def _enter(
    streams: Tensor,
    mix: Tensor | None,
    output: Tensor | None,
    fn: Tensor,
    scale: Tensor,
    base: Tensor,
    weight: Tensor,
    norm_eps: float,
    eps: float,
    magnitude: float,
    post_eps: float,
    iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    (tokens, n, hidden), rows = streams.shape, len(fn)
    settled = streams = streams.contiguous()
    columns = 0
    if mix is not None and output is not None:
        mix, output, settled, columns = mix.contiguous(), output.contiguous(), torch.empty_like(streams), mix.shape[1]
    x = torch.empty(tokens, hidden, dtype=streams.dtype, device=streams.device)
    following = torch.empty(tokens, rows - n, dtype=torch.float32, device=streams.device)
    if tokens == 0:
        return settled, following, x
    padded = triton.next_power_of_2(rows + 1)
    splits = triton.cdiv(hidden, _SPLIT) if tokens <= _FEW else 0
    parts = torch.empty(tokens, splits, padded, dtype=torch.float32, device=streams.device)
    if splits or columns:
        block = _SPLIT if splits else min(_BLOCK, triton.next_power_of_2(hidden))
        _update_kernel[(tokens, triton.cdiv(hidden, block))](
            streams, streams if mix is None else mix, streams if output is None else output, settled, fn, parts,
            H=hidden, N=n, M=columns, Z=rows if splits else 0, ZP=padded, BLOCK=block, num_warps=4,
        )  # fmt: skip
    if not splits:
        flat = settled.flatten(1).float()
        parts = F.linear(F.rms_norm(flat, flat.shape[1:], None, norm_eps), fn)
    wide = triton.next_power_of_2(hidden)
    _enter_kernel[(tokens,)](
        settled, parts, scale, base, weight, x, following, norm_eps, eps, magnitude, post_eps, H=hidden, HP=wide, N=n,
        Z=rows, ZP=padded, S=splits, SP=triton.next_power_of_2(max(splits, 1)), ITERATIONS=iterations,
        num_warps=min(16, max(1, wide // 512)),
    )  # fmt: skip
    return settled, following, x


collapse, ihc_enter, mhc_enter = operators_of(_enter)
