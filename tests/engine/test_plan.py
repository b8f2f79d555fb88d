"""The memory plan on machines that do not exist: never over the budget, wishes win, refusals name numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import BadRequest, DoesNotFit, EngineSettings
from engine.memory.lines import gib_allowed, gib_needed
from engine.memory.machine import Gpu, Machine
from engine.memory.plan import MemoryPlan
from engine.runtime import describe
from tests.engine.helpers import is_one_sentence
from tests.support.oracle import OracleCase

MIB, GIB = 1 << 20, 1 << 30
CPU = EngineSettings(device="cpu")
Plan = Callable[..., MemoryPlan]


@pytest.fixture(scope="module", params=["hy_v4_vl", "hy_v4-bf16", "glm_moe_dsa", "deepseek_v4"])
def plan(request: pytest.FixtureRequest, oracle_case: Callable[..., OracleCase]) -> Plan:
    family, _, experts = request.param.partition("-")
    path = oracle_case(family, **({"experts": experts} if experts else {})).path

    def get(wishes: EngineSettings = CPU, ram: int = 64 * GIB, gpus: tuple[Gpu, ...] = ()) -> MemoryPlan:
        return describe(path, wishes, Machine(2 * ram, ram, gpus)).plan

    return get


def fits(plan: MemoryPlan) -> None:
    tier = "GPU" if plan.device.startswith("cuda") else "RAM"
    assert plan.total_bytes(tier) <= plan.budget_bytes
    assert all(line.nbytes >= 0 and line.reason for line in plan.lines)
    assert 0 < plan.context_tokens <= plan.cache_tokens
    cache = next(line for line in plan.lines if line.label == "KV cache")
    assert cache.nbytes > 0


@settings(max_examples=60, deadline=None)
@given(
    ram=st.integers(1 * MIB, 400 * MIB),
    cache=st.none() | st.integers(1, 20_000),
    batch=st.integers(1, 64),
    chunk=st.integers(1, 2048),
)
def test_the_lines_never_exceed_the_budget(plan: Plan, ram: int, cache: int | None, batch: int, chunk: int) -> None:
    wishes = replace(CPU, cache_tokens=cache, max_batch=batch, prefill_chunk_tokens=chunk)
    try:
        made = plan(wishes, ram)
    except DoesNotFit as error:
        needed, budget = (float(n.replace(",", "")) for n in re.findall(r"([\d.,]+) (?:MiB|GiB)", str(error)))
        assert needed > budget and is_one_sentence(error)
    else:
        fits(made)
        assert made.budget_bytes <= ram


@pytest.mark.parametrize("budget", [80_000_000, (1 << 30) - 1, 5 << 30])
def test_one_byte_too_many_can_be_read(budget: int) -> None:
    assert gib_needed(budget + 1) != gib_allowed(budget)


def test_some_of_the_machines_above_are_too_small_and_some_are_not(plan: Plan) -> None:
    with pytest.raises(DoesNotFit, match=r"[\d.]+ MiB of RAM .* only [\d.]+ MiB"):
        plan(CPU, 30 * MIB)
    fits(plan(CPU, 400 * MIB))


def test_experts_stay_in_the_files_when_they_do_not_fit(plan: Plan) -> None:
    """Give exactly what everything but the experts needs, then a little more."""
    wide = plan(replace(CPU, cache_tokens=1024))
    experts = next(line.nbytes for line in wide.lines if line.label == "experts")
    narrow = plan(replace(CPU, cache_tokens=1024, ram_budget_bytes=wide.total_bytes("RAM") - experts // 2))
    fits(narrow)
    assert wide.experts != "mapped" and not wide.warnings
    assert narrow.experts == "mapped" and narrow.warnings
    assert any(line.tier == "disk" and line.nbytes > 0 for line in narrow.lines)


def test_explicit_wishes_win(plan: Plan) -> None:
    made = plan(replace(CPU, cache_tokens=640, context_tokens=100, ram_budget_bytes=500 * MIB))
    assert (made.budget_bytes, made.context_tokens) == (500 * MIB, 100)
    assert 640 <= made.cache_tokens < 640 + 8192
    assert not made.warnings
    assert plan(replace(CPU, cache_tokens=1)).cache_tokens >= 1


def test_an_explicit_context_is_never_made_shorter(plan: Plan) -> None:
    for ram in range(40, 400, 20):
        try:
            made = plan(replace(CPU, context_tokens=4096), ram * MIB)
        except DoesNotFit:
            continue
        assert made.context_tokens == 4096


@pytest.mark.parametrize(
    "wish",
    [{"ram_budget_bytes": 0}, {"ram_budget_bytes": -1}, {"cache_tokens": 0}, {"cache_tokens": -64}, {"context_tokens": 0},
     {"context_tokens": -1}, {"context_tokens": 10**9}, {"prefill_chunk_tokens": 0}, {"max_batch": 0}, {"max_batch": -3},
     {"threads": 0}, {"device": "tpu"}, {"device": "cuda:x"}, {"device": "cpu:1"}, {"device": "cuda:-1"},
     {"context_tokens": 1000, "cache_tokens": 100}],
    ids=str,
)  # fmt: skip
def test_wishes_that_make_no_sense(plan: Plan, wish: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as caught:
        plan(replace(CPU, **wish))  # type: ignore[arg-type]
    assert is_one_sentence(caught.value)


def test_a_gpu_that_is_not_there(plan: Plan) -> None:
    with pytest.raises(DoesNotFit, match="cuda:1"):
        plan(EngineSettings(device="cuda:1"), gpus=(Gpu("small", 8 * GIB, 8 * GIB),))


def test_a_budget_of_one_byte_is_a_budget(plan: Plan) -> None:
    with pytest.raises(DoesNotFit):
        plan(replace(CPU, ram_budget_bytes=1))


def test_the_plan_reads_as_a_table_that_adds_up(plan: Plan) -> None:
    made = plan()
    text = str(made)
    assert all(line.label in text for line in made.lines) and f"{made.context_tokens:,}" in text
    assert made.total_bytes() == sum(line.nbytes for line in made.lines if line.tier != "disk")
