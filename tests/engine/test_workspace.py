"""Packed experts through the FP8 workspace give what decoded experts give, layer after layer, and wide blocks are kept exact."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.model.experts import DecodedExperts
from engine.model.workspace import Fp8Workspace, WorkspaceExperts, wide_blocks, workspace_bytes
from kernels.experts import FEW_TOKENS, MxFp4Matrix
from kernels.formats import dequantize_mxfp4
from tests.support.compare import relative_rms

EXPERTS, WIDTH, HIDDEN = 6, 128, 256


def packed(rows: int, columns: int, seed: int, spread: int = 6) -> MxFp4Matrix:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (EXPERTS, rows, columns // 2), generator=generator, dtype=torch.uint8)
    scale = torch.randint(118, 118 + spread, (EXPERTS, rows, columns // 32), generator=generator, dtype=torch.uint8)
    return MxFp4Matrix(codes, scale)


def bank(workspace: Fp8Workspace, seed: int, spread: int = 6) -> tuple[WorkspaceExperts, DecodedExperts]:
    gate_up, down = packed(2 * WIDTH, HIDDEN, seed, spread), packed(HIDDEN, WIDTH, seed + 100)
    decoded = DecodedExperts(dequantize_mxfp4(*gate_up), dequantize_mxfp4(*down))
    return WorkspaceExperts(gate_up, down, workspace), decoded


def request(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.stack([torch.randperm(EXPERTS, generator=generator)[:2] for _ in range(tokens)])
    return torch.randn(tokens, HIDDEN, generator=generator), ids, torch.rand(tokens, 2, generator=generator)


@pytest.mark.parametrize("tokens", [1, FEW_TOKENS, FEW_TOKENS + 1, 70])
def test_every_layer_gets_its_own_experts(tokens: int) -> None:
    workspace = Fp8Workspace(torch.device("cpu"))
    banks = [bank(workspace, seed) for seed in range(5)]
    x, ids, weights = request(tokens)
    for _ in range(2):  # the second round meets halves that hold other layers
        for mine, plain in banks:
            assert relative_rms(plain(x, ids, weights, 10.0), mine(x, ids, weights, 10.0)) < 1e-5
    assert workspace.wide_blocks == 0


def test_only_two_halves_are_ever_made() -> None:
    workspace = Fp8Workspace(torch.device("cpu"))
    banks = [bank(workspace, seed) for seed in range(4)]
    for mine, _ in banks:
        mine(*request(FEW_TOKENS + 1), None)
    assert workspace.nbytes == workspace_bytes(EXPERTS, WIDTH, HIDDEN)


@pytest.mark.parametrize("group", [1, 2, 4, 6, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_after_group_gives_the_same_bits(group: int, dtype: torch.dtype) -> None:
    """Also where some experts are not in use, and where one has a single token."""
    whole, grouped = Fp8Workspace(torch.device("cpu")), Fp8Workspace(torch.device("cpu"), group)
    one, other = bank(whole, 3)[0], bank(grouped, 3)[0]
    x, ids, weights = request(FEW_TOKENS + 5)
    ids = torch.where(ids == 1, 4, ids)
    ids[7, 0] = 2
    for used in (ids, ids.clamp(min=3), torch.full_like(ids, 5)):
        expected = one(x.to(dtype), used, weights, 10.0)
        assert torch.equal(other(x.to(dtype), used, weights, 10.0), expected)
    assert grouped.nbytes == group * workspace_bytes(1, WIDTH, HIDDEN) // 2


def test_wide_blocks_are_counted_and_multiplied_exactly() -> None:
    workspace = Fp8Workspace(torch.device("cpu"))
    mine, plain = bank(workspace, 7, spread=30)
    assert not mine.exact and mine.wide_blocks == workspace.wide_blocks > 0
    x, ids, weights = request(FEW_TOKENS + 1)
    assert relative_rms(plain(x, ids, weights, None), mine(x, ids, weights, None)) < 1e-6
    assert not workspace._halves


def test_a_block_of_span_fourteen_is_still_exact() -> None:
    scale = torch.full((1, 1, 8), 120, dtype=torch.uint8)
    scale[0, 0, 0], scale[0, 0, 4] = 106, 105
    assert wide_blocks(MxFp4Matrix(torch.zeros(1, 1, 128, dtype=torch.uint8), scale)) == 1
