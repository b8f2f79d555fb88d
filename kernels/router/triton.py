"""Top-k routing on a GPU without a host synchronisation, one token per program. E experts, k chosen, G groups."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import require_gpu
from kernels.router import reference
from kernels.router.reference import Scoring


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _score(x, SIGMOID: tl.constexpr):
    """Sigmoid, or the square root of softplus, with log(1 + t) by its series where t is small."""
    if SIGMOID:
        return 1.0 / (1.0 + tl.exp(-x))
    t = tl.exp(-tl.abs(x))
    log = tl.where(t < 0.01, t * (1.0 - t * (0.5 - t * (1.0 / 3.0 - t * 0.25))), tl.log(1.0 + t))
    return tl.sqrt(tl.maximum(x, 0.0) + log)


@triton.jit
def _first_largest(values, index, SIZE: tl.constexpr):
    """The lowest index of the largest value."""
    return tl.min(tl.where(values == tl.max(values, 0), index, SIZE), 0)


@triton.jit
def _route_kernel(
    logits_ptr,  # float32 [N, E]
    bias_ptr,  # float32 [E] or [N, E]
    ids_ptr,  # int64 [N, k]: written, or read with FIXED
    weights_ptr,  # float32 [N, k]
    bias_stride,
    scale,
    E: tl.constexpr,
    PADDED: tl.constexpr,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    G: tl.constexpr,
    KEPT: tl.constexpr,
    SIGMOID: tl.constexpr,
    FIXED: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, SLOTS)
    chosen = tl.zeros([SLOTS], tl.float32)
    if FIXED:
        picked = tl.load(ids_ptr + n * K + slot, mask=slot < K, other=0)
        chosen = _score(tl.load(logits_ptr + n * E + picked), SIGMOID)
        chosen = tl.where(slot < K, chosen, 0.0)
    else:
        expert = tl.arange(0, PADDED)
        inside = expert < E
        scores = _score(tl.load(logits_ptr + n * E + expert, mask=inside, other=0.0), SIGMOID)
        bias = tl.load(bias_ptr + n * bias_stride + expert, mask=inside, other=0.0)
        choice = tl.where(inside, scores + bias, float("-inf"))
        if G > 1:
            group, member = tl.arange(0, G), tl.arange(0, PADDED // G)
            grouped = tl.reshape(choice, [G, PADDED // G])
            best = tl.max(grouped, 1)
            at = tl.min(tl.where(grouped == best[:, None], member[None, :], PADDED), 1)
            rest = tl.where(member[None, :] == at[:, None], float("-inf"), grouped)
            strength = best + tl.max(rest, 1)
            kept = tl.zeros([G], tl.int32)
            for _ in tl.static_range(KEPT):
                where = _first_largest(strength, group, G)
                kept = tl.where(group == where, 1, kept)
                strength = tl.where(group == where, float("-inf"), strength)
            choice = tl.reshape(tl.where(kept[:, None] > 0, grouped, float("-inf")), [PADDED])
        ids = tl.zeros([SLOTS], tl.int32)
        for j in tl.static_range(K):
            where = _first_largest(choice, expert, PADDED)
            ids = tl.where(slot == j, where, ids)
            chosen = tl.where(slot == j, tl.sum(tl.where(expert == where, scores, 0.0), 0), chosen)
            choice = tl.where(expert == where, float("-inf"), choice)
        tl.store(ids_ptr + n * K + slot, ids.to(tl.int64), mask=slot < K)
    total = tl.sum(chosen, 0) + 1e-20
    tl.store(weights_ptr + n * K + slot, chosen * (scale / total), mask=slot < K)


def _launch(
    logits: Tensor, bias: Tensor, ids: Tensor, scoring: Scoring, scale: float, groups: int, kept: int, fixed: bool
) -> Tensor:
    tokens, experts = logits.shape
    weights = torch.empty(ids.shape, dtype=torch.float32, device=logits.device)
    if tokens:
        _route_kernel[(tokens,)](
            logits.contiguous(), bias, ids, weights, bias.stride(0) if bias.dim() == 2 else 0, scale, E=experts,
            PADDED=triton.next_power_of_2(experts), K=ids.shape[1], SLOTS=triton.next_power_of_2(ids.shape[1]),
            G=groups, KEPT=kept, SIGMOID=scoring == "sigmoid", FIXED=fixed, num_warps=1 if experts <= 128 else 2,
        )  # fmt: skip
    return weights


def route(
    logits: Tensor,
    bias: Tensor,
    k: int,
    scoring: Scoring,
    scale: float,
    num_groups: int = 1,
    kept_groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """See the reference; with groups the number of experts must be a power of two."""
    experts = logits.shape[1]
    if num_groups > 1 and experts != triton.next_power_of_2(experts):
        return reference.route(logits, bias, k, scoring, scale, num_groups, kept_groups)
    ids = torch.empty(logits.shape[0], k, dtype=torch.int64, device=logits.device)
    return ids, _launch(logits, bias, ids, scoring, scale, num_groups, kept_groups, False)


def route_fixed(logits: Tensor, ids: Tensor, scoring: Scoring, scale: float) -> Tensor:
    """See the reference."""
    return _launch(logits, logits, ids.contiguous(), scoring, scale, 1, 1, True)
