"""Published models on machines of all sizes: what the plan puts on the GPU, in RAM and on disk, and what it refuses."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api import DoesNotFit, EngineSettings
from engine.cache.layout import declare_cache
from engine.families import find_family
from engine.memory.expert_plan import ExpertFacts, OnGpu, place_experts
from engine.memory.machine import Gpu, Machine
from engine.memory.plan import MemoryPlan, plan_memory
from engine.model.expert_groups import ExpertShape
from engine.model.loader import declare
from engine.model.spec import ModelSpec
from engine.runtime import gpu_experts
from tests import published
from tests.engine.helpers import is_one_sentence

GIB = 1 << 30
MACHINES = [(gpu, ram) for gpu in (24, 48, 96, 139) for ram in (64, 200, 512)]


@cache
def _described(name: str) -> ModelSpec:
    config = published.load(name)
    return find_family(config).parse(config)


@cache
def plan(name: str, gpu: int, ram: int, mxfp4: bool = True, **wishes: int) -> MemoryPlan | DoesNotFit:
    """For GiB of free GPU memory and RAM; mxfp4: experts are stored so, else as FP8, which no kernel multiplies."""
    spec, machine = _described(name), Machine(ram * GIB, ram * GIB, (Gpu("made up", gpu * GIB, gpu * GIB),))
    sizes, dtype = gpu_experts(spec), torch.bfloat16
    assert sizes is not None
    facts = ExpertFacts(sizes.count * sizes.shape.packed_bytes, True, sizes)
    if not mxfp4:
        facts = ExpertFacts(sizes.count * 3 * sizes.shape.width * sizes.shape.hidden, False)
    layout = declare_cache(spec, dtype, compact=True)
    try:
        return plan_memory(spec, declare(spec), layout, facts, machine, EngineSettings(device="cuda", **wishes), dtype)
    except DoesNotFit as refusal:
        return refusal


def made(name: str, gpu: int, ram: int, mxfp4: bool = True, **wishes: int) -> MemoryPlan:
    result = plan(name, gpu, ram, mxfp4, **wishes)
    assert isinstance(result, MemoryPlan), result
    return result


def nbytes(plan: MemoryPlan, label: str, tier: str) -> int:
    return sum(line.nbytes for line in plan.lines if (line.label, line.tier) == (label, tier))


def outcome(result: MemoryPlan | DoesNotFit) -> str:
    """One word for a plan."""
    if isinstance(result, DoesNotFit):
        return "refused"
    return "disk" if result.total_bytes("disk") else result.experts


@pytest.mark.parametrize(
    ("name", "mxfp4", "expected"),
    [
        ("deepseek_v4_flash", True, "disk spread spread  disk spread spread  disk spread spread  spread spread spread"),
        ("deepseek_v4_pro", True, "refused refused refused  refused refused refused  disk disk disk  disk disk disk"),
        ("hy4", True, "refused refused refused  refused refused refused  disk disk spread  disk disk spread"),
        ("deepseek_v32", True, "refused refused refused  disk disk spread  disk disk spread  disk disk spread"),
        ("deepseek_v32", False, "refused refused refused  disk disk disk  disk disk disk  disk disk disk"),
    ],
)
def test_published_models(name: str, mxfp4: bool, expected: str) -> None:
    results = [plan(name, gpu, ram, mxfp4) for gpu, ram in MACHINES]
    assert [outcome(result) for result in results] == expected.split()
    for result, (gpu, ram) in zip(results, MACHINES, strict=True):
        if isinstance(result, DoesNotFit):
            needed, budget = (float(n) for n in re.findall(r"([\d.]+) GiB", str(result)))
            assert needed > budget and is_one_sentence(result)
            assert 0 <= 0.92 * gpu - budget < 0.011  # rounded down to what is shown
            continue
        assert result.total_bytes("GPU") <= result.budget_bytes <= gpu * GIB
        assert result.total_bytes("RAM") <= result.ram_budget_bytes <= ram * GIB
        assert all(line.nbytes > 0 and line.reason for line in result.lines)
        assert result.total_bytes("GPU") > 0.99 * result.budget_bytes - 2 * GIB  # nothing lies idle
        assert (result.shares is not None) == mxfp4 == (result.experts == "spread")
        assert bool(result.total_bytes("disk")) == any(
            "again and again" in w or "decoded" in w for w in result.warnings
        )
        if result.shares is not None:
            packed = nbytes(result, "experts", "GPU") // result.shares.slots
            everywhere = result.shares.slots + result.shares.in_ram + nbytes(result, "experts", "disk") // packed
            assert everywhere >= result.shares.count
            if result.shares.in_ram < result.shares.count:
                assert result.total_bytes("RAM") > 0.97 * result.ram_budget_bytes - GIB


def test_what_a_card_of_24_gib_gives_v4_flash() -> None:
    """The buffers for many tokens are a matter of megabytes; all experts are in RAM, and more than a token's on the GPU."""
    result = made("deepseek_v4_flash", 24, 200)
    assert result.shares is not None and result.shares.in_ram == result.shares.count == 43 * 256
    assert nbytes(result, "expert staging", "GPU") < GIB / 2
    assert result.shares.slots > 43 * 6
    assert 137 * GIB < nbytes(result, "experts", "RAM") < 1.01 * 137.1 * GIB


def test_all_experts_on_the_gpu_with_a_workspace_as_large_as_fits() -> None:
    """From two whole layers down to a group, before a single expert leaves the GPU."""
    free, groups = [256, 195, 187, 183, 181], []
    for gpu in free:
        result = made("deepseek_v4_flash", gpu, 64)
        groups.append(result.workspace_group if result.experts == "packed" else 0)
        if groups[-1] != 0:
            assert nbytes(result, "experts", "GPU") == 11_008 * ExpertShape(2048, 4096).packed_bytes
            assert result.total_bytes("RAM") == result.total_bytes("disk") == 0
    assert groups[0] is None and groups[-1] == 0
    middle = [group for group in groups[1:-1] if group]
    assert middle and middle == sorted(middle, reverse=True) and min(middle) >= 8


def test_more_of_anything_never_means_fewer_experts_in_fast_memory() -> None:
    for ram in (64, 200):
        slots = [made("deepseek_v4_flash", gpu, ram).shares for gpu in (24, 32, 48, 80, 96, 139)]
        counts = [shares.slots for shares in slots if shares is not None]
        assert counts == sorted(counts) and len(counts) == 6
    disk = [made("hy4", 96, ram).total_bytes("disk") for ram in (64, 128, 256, 400, 512)]
    assert disk == sorted(disk, reverse=True) and disk[-1] == 0


def test_a_budget_for_ram_is_kept() -> None:
    result = made("deepseek_v4_flash", 48, 512, ram_budget_bytes=32 * GIB)
    assert result.ram_budget_bytes == 32 * GIB and 30 * GIB < result.total_bytes("RAM") <= 32 * GIB
    refused = plan("deepseek_v4_flash", 48, 512, ram_budget_bytes=1 << 20)
    assert isinstance(refused, DoesNotFit) and "--ram-budget" in str(refused) and is_one_sentence(refused)


def test_both_totals_are_shown() -> None:
    text = str(made("deepseek_v4_flash", 24, 64))
    assert re.search(r"total +GPU +2[12]\.\d\d GiB", text) and re.search(r"total +RAM +\d\d\.\d\d GiB", text)
    assert re.search(r"total +disk +\d\d\.\d\d GiB", text)


@given(
    width=st.integers(1, 20), hidden=st.integers(1, 40), layers=st.integers(1, 80), experts=st.integers(1, 400),
    topk=st.integers(1, 8), over=st.integers(0, 1 << 38), ram=st.integers(1 << 27, 1 << 40),
)  # fmt: skip
def test_sums_never_exceed_the_room(
    width: int, hidden: int, layers: int, experts: int, topk: int, over: int, ram: int
) -> None:
    sizes = OnGpu(ExpertShape(128 * width, 128 * hidden), layers, experts, min(topk, experts))
    room, packed = sizes.least_bytes + over, sizes.shape.packed_bytes
    result = place_experts(ExpertFacts(sizes.count * packed, True, sizes), [1], room, ram, "GPU")
    total = {tier: sum(line.nbytes for line in result.lines if line.tier == tier) for tier in ("GPU", "RAM", "disk")}
    assert total["GPU"] <= room and total["RAM"] <= ram
    if result.shares is None:
        assert result.place == "packed" and total["RAM"] == total["disk"] == 0
        return
    shares = result.shares
    assert sizes.topk <= shares.slots <= sizes.count and 0 <= shares.in_ram <= sizes.count and shares.group >= 1
    assert total["disk"] == max(sizes.count - shares.slots - shares.in_ram, 0) * packed
    assert room - total["GPU"] < packed or shares.slots == sizes.count
