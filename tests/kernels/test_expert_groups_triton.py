"""Experts in groups and spread experts with the GPU's own kernels: the same bits as all experts at once."""

from __future__ import annotations

import pytest
import torch

from engine.memory.expert_plan import Shares
from engine.model.expert_groups import ExpertShape
from engine.model.spread import SpreadExperts, SpreadMemory
from engine.model.workspace import Fp8Workspace, WorkspaceExperts
from kernels.experts import MxFp4Matrix, PackedExpert

kernels = pytest.importorskip("kernels.experts.triton")
FEW, EXPERTS, TOPK, SHAPE = 2, 5, 3, ExpertShape(width=128, hidden=128)


@pytest.fixture(autouse=True)
def chosen_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, also where the interpreter stands in for one."""
    for place in ("engine.model.expert_groups", "engine.model.workspace", "engine.model.spread"):
        for name in ("convert_mxfp4_to_fp8", "fp8_experts", "mxfp4_experts"):
            monkeypatch.setattr(f"{place}.{name}", getattr(kernels, name), raising=False)
        monkeypatch.setattr(f"{place}.FEW_TOKENS", FEW, raising=False)


def experts() -> list[PackedExpert]:
    random = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int) -> MxFp4Matrix:
        codes = torch.randint(0, 256, (rows, columns // 2), generator=random, dtype=torch.uint8)
        return MxFp4Matrix(codes, torch.randint(116, 121, (rows, columns // 32), generator=random, dtype=torch.uint8))

    width, hidden = SHAPE
    return [PackedExpert(matrix(width, hidden), matrix(width, hidden), matrix(hidden, width)) for _ in range(EXPERTS)]


@pytest.mark.parametrize("tokens", [FEW, FEW + 3])
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
def test_the_same_bits(tokens: int, dtype: torch.dtype, device: str) -> None:
    """Not in bfloat16 in the interpreter, which cuts off where a GPU rounds."""
    random = torch.Generator().manual_seed(tokens)
    files = experts()
    gate_up = (torch.stack([torch.cat([each.gate[i], each.up[i]]) for each in files]).to(device) for i in range(2))
    down = (torch.stack([each.down[i] for each in files]).to(device) for i in range(2))
    packed = MxFp4Matrix(*gate_up), MxFp4Matrix(*down)
    where = torch.device(device)
    banks = [WorkspaceExperts(*packed, Fp8Workspace(where, group)) for group in (None, 2)]
    memory = SpreadMemory(Shares(slots=4, in_ram=2, group=2, layers=1, count=EXPERTS), SHAPE, where)
    banks.append(SpreadExperts(EXPERTS, files.__getitem__, lambda _: None, memory, lambda _: None))
    x = torch.randn(tokens, SHAPE.hidden, generator=random).to(device, dtype)
    used = EXPERTS - 1 if tokens == FEW else EXPERTS  # no more than slots
    ids = torch.stack([torch.randperm(used, generator=random)[:TOPK] for _ in range(tokens)]).to(device)
    weights = torch.rand(tokens, TOPK, generator=random).to(device)
    whole, *others = (bank(x, ids, weights, 3.0) for bank in banks)
    assert all(torch.equal(other, whole) for other in others)
    assert whole.isfinite().all() and whole.std() > 1e-6
