"""Experts spread over device, RAM and files give the numbers of experts that are all on the device, whatever memory there is.

Everything runs with the CPU as the device; where there is a GPU, also there, with its streams and kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.api import BadCheckpoint, EngineSettings
from engine.memory.expert_plan import ExpertFacts, OnGpu, Shares, place_experts
from engine.memory.machine import Gpu, Machine
from engine.memory.plan import MemoryPlan
from engine.model import spread as spread_module
from engine.model.expert_groups import ExpertShape, Fp8Room, Place, empty_stack
from engine.model.expert_store import ExpertStore, slabs_for
from engine.model.spread import ExpertPool, SpreadExperts, SpreadMemory, Staging
from engine.model.workspace import Fp8Workspace, WorkspaceExperts
from engine.runtime import Runtime, describe, open_runtime
from kernels.choose import OPERATORS, use
from kernels.experts import FEW_TOKENS, Fp8Matrix, MxFp4Matrix, PackedExpert
from tests.bench.spread import measure
from tests.engine.family_runner import one_thread
from tests.engine.helpers import copy_of, patch, scored
from tests.support import compare
from tests.support.oracle import OracleCase

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick_and_in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread, and on the CPU the reference: the C code adds a token's experts in the order of their rows."""
    on_gpu = any(word in request.node.name for word in ("cuda", "on_a_gpu"))
    with one_thread(), nullcontext() if on_gpu else use("mxfp4_experts", "reference"):
        yield


LAYERS, EXPERTS, TOPK = 3, 6, 2
SHAPE = ExpertShape(width=128, hidden=256)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


def packed_experts(shape: ExpertShape, experts: int, seed: int, wide: bool = False) -> list[PackedExpert]:
    random = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> MxFp4Matrix:
        codes = torch.randint(0, 256, (rows, columns // 2), generator=random, dtype=torch.uint8)
        high = 150 if wide else 120
        return MxFp4Matrix(codes, torch.randint(116, high, (rows, columns // 32), generator=random, dtype=torch.uint8))

    width, hidden = shape
    return [PackedExpert(matrix(width, hidden), matrix(width, hidden), matrix(hidden, width)) for _ in range(experts)]


class Layers:
    """The same layers twice: spread, and with everything on the device."""

    def __init__(self, shares: Shares, device: str = "cpu", shape: ExpertShape = SHAPE, wide: bool = False) -> None:
        self.device, self.shape, self.shares = torch.device(device), shape, shares
        self.per_layer = shares.count // shares.layers
        self.memory = SpreadMemory(shares, shape, self.device)
        workspace = Fp8Workspace(self.device)
        self.released: list[tuple[int, int]] = []
        self.files = [packed_experts(shape, self.per_layer, layer, wide) for layer in range(shares.layers)]
        self.spread, self.whole = [], []
        for layer, experts in enumerate(self.files):
            release = lambda e, layer=layer: self.released.append((layer, e))  # noqa: E731
            self.spread.append(SpreadExperts(self.per_layer, experts.__getitem__, release, self.memory, lambda _: None))
            gate_up = (torch.stack([torch.cat([x.gate[i], x.up[i]]) for x in experts]).to(device) for i in range(2))
            down = (torch.stack([x.down[i] for x in experts]).to(device) for i in range(2))
            self.whole.append(WorkspaceExperts(MxFp4Matrix(*gate_up), MxFp4Matrix(*down), workspace))

    def step(
        self,
        tokens: int,
        seed: int,
        limit: float | None = 10.0,
        dtype: torch.dtype = torch.float32,
        tolerance: float = 0.0,
    ) -> None:
        """All layers give the same numbers; without a tolerance the same bits."""
        random = torch.Generator().manual_seed(seed)
        for layer in range(self.shares.layers):
            x = torch.randn(tokens, self.shape.hidden, generator=random).to(self.device, dtype)
            # Some experts are used more than others, so that some are worth keeping.
            wanted = torch.rand(tokens, self.per_layer, generator=random).pow(1 + torch.arange(self.per_layer))
            ids = wanted.topk(TOPK).indices.to(self.device)
            weights = torch.rand(tokens, TOPK, generator=random).to(self.device)
            expected = self.whole[layer](x, ids, weights, limit)
            actual = self.spread[layer](x, ids, weights, limit)
            error = 0.0 if torch.equal(actual, expected) else compare.relative_rms(actual, expected) + 1e-30
            assert error <= tolerance, f"layer {layer}, {tokens} tokens: {error}"

    def check(self) -> None:
        """The pool holds what it says, and nothing twice."""
        pool = self.memory.pool
        assert {key: slot for slot, key in enumerate(pool._key) if key is not None} == pool._slot
        for (layer, e), slot in pool._slot.items():
            expert = self.files[layer][e]
            for whole, parts in zip(pool.stack, ((expert.gate, expert.up), (expert.down,)), strict=True):
                for stack, pieces in zip(whole, zip(*parts, strict=True), strict=True):
                    assert torch.equal(stack[slot].cpu(), torch.cat(pieces))


def shares(slots: int, in_ram: int, group: int, layers: int = LAYERS, experts: int = EXPERTS) -> Shares:
    return Shares(slots, in_ram, group, layers, layers * experts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("slots", "in_ram", "group"),
    [(18, 18, 16), (6, 18, 2), (8, 12, 4), (7, 5, 1), (18, 0, 3), (6, 0, 2), (7, 18, 1), (17, 1, 6)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_spread_layers_give_the_same_bits(device: str, slots: int, in_ram: int, group: int, dtype: torch.dtype) -> None:
    layers = Layers(shares(slots, in_ram, group), device)
    layers.check()
    for seed, tokens in enumerate([1, FEW_TOKENS + 1, 1, 2, 150, 1, FEW_TOKENS, 1]):
        layers.step(tokens, seed, limit=10.0 if seed % 2 else None, dtype=dtype)
        layers.check()
    assert layers.memory.pool.full


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_step_may_need_more_experts_than_there_are_slots(device: str, slots: int) -> None:
    """Then a token's experts are added in float32 outside of the kernel, and the last bits may differ."""
    layers = Layers(shares(slots, 9, 2), device)
    for seed, tokens in enumerate([FEW_TOKENS, 5, 1, FEW_TOKENS + 1, 3]):
        layers.step(tokens, seed, tolerance=1e-5 if tokens <= FEW_TOKENS else 0.0)
        layers.check()
    layers.step(FEW_TOKENS, 9, tolerance=1e-2, dtype=torch.bfloat16)


@pytest.mark.parametrize("device", DEVICES)
def test_layers_with_wide_blocks_are_never_converted(device: str) -> None:
    layers = Layers(shares(6, 10, 2), device, wide=True)
    assert all(
        mine.wide_blocks == whole.wide_blocks > 0 for mine, whole in zip(layers.spread, layers.whole, strict=True)
    )
    if device == "cpu":
        for seed, tokens in enumerate([1, FEW_TOKENS + 1, 3]):
            layers.step(tokens, seed)
    layers.check()


def test_no_tokens() -> None:
    layers = Layers(shares(6, 18, 2))
    x = torch.empty(0, SHAPE.hidden)
    assert layers.spread[0](x, torch.empty(0, 2, dtype=torch.int64), torch.empty(0, 2), None).shape == x.shape


# ---------------------------------------------------------------- who is held


def test_what_is_used_stays_and_what_is_not_gives_way() -> None:
    """Expert 0 of every layer in every step, beside one of the others in turn: a sweep that recency alone would lose."""
    layers = Layers(shares(slots=LAYERS + TOPK, in_ram=LAYERS * EXPERTS, group=1))
    use = layers.memory.use

    def step(n: int) -> None:
        for mine in layers.spread:
            mine(torch.ones(1, SHAPE.hidden), torch.tensor([[0, 1 + n % (EXPERTS - 1)]]), torch.ones(1, 2), None)

    for n in range(20):
        step(n)
    before = replace(use)
    for n in range(20):
        step(n)
        assert {(layer, 0) for layer in range(LAYERS)} <= set(layers.memory.pool._slot)
    assert use.held - before.held >= 20 * LAYERS and use.from_disk == 0
    assert use.held + use.from_ram == 2 * 40 * LAYERS
    assert use.hit_rate == use.held / (use.held + use.from_ram)


def test_old_uses_fade() -> None:
    pool = ExpertPool(2, SHAPE, 1, CPU)
    for e in range(2):
        pool.settle((0, e), pool.free(1)[0])
    for _ in range(2000):
        pool.look(0, {0: 1.0})
    for _ in range(2000):
        pool.look(0, {1: 1.0})
    slot = pool._slot[0, 0]
    assert pool.free(1) == [slot] and (0, 0) not in pool._slot


def test_very_long_sessions_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_module, "_HALF_LIFE_STEPS", 1)
    pool = ExpertPool(3, SHAPE, 1, CPU)
    for e in range(3):
        pool.settle((0, e), pool.free(1)[0])
    for n in range(5000):
        pool.look(0, {n % 2: 1.0})
    assert pool._worth.isfinite().all() and pool._gain <= 1e100
    slots = [pool._slot[0, e] for e in (2, 0, 1)]
    assert [pool.free(1)[0] for _ in range(1)] == slots[:1]
    pool.settle((0, 2), slots[0])
    pool.look(0, {2: 1.0})
    assert pool.free(1) == [slots[1]]


def test_slots_in_use_are_never_taken() -> None:
    pool = ExpertPool(4, SHAPE, 1, CPU)
    for e in range(4):
        pool.settle((0, e), pool.free(1)[0])
    busy = [pool._slot[0, e] for e in (0, 2)]
    assert set(pool.free(2, busy)) == {pool._slot.get((0, 1)), pool._slot.get((0, 3))} - {None} | set(range(4)) - set(
        busy
    )
    with pytest.raises(AssertionError):
        pool.free(3, busy)


def test_what_only_the_files_have_is_kept_longer() -> None:
    """RAM keeps the first half of the numbers; the pool begins with the second and first gives up what RAM has too."""
    layers = Layers(shares(slots=9, in_ram=10, group=1))
    pool = layers.memory.pool
    in_files = {key for key in pool._slot if not layers.memory.store.keeps(key)}
    assert len(in_files) == 8 and len(pool._slot) == 9
    layers.spread[0](torch.ones(1, SHAPE.hidden), torch.tensor([[0]]), torch.ones(1, 1), None)
    assert in_files <= set(pool._slot) and (0, 0) in pool._slot
    assert (layers.memory.use.from_ram, layers.memory.use.from_disk) == (1, 0)


def test_counts_of_a_prompt() -> None:
    layers = Layers(shares(slots=6, in_ram=9, group=2))
    held = sum(key[0] == 0 for key in layers.memory.pool._slot)
    ids = torch.arange(FEW_TOKENS + 4).remainder(EXPERTS).unsqueeze(1)
    before = dict(layers.memory.pool._slot)
    layers.spread[0](torch.ones(len(ids), SHAPE.hidden), ids, torch.ones(len(ids), 1), None)
    use = layers.memory.use
    assert (use.held, use.from_ram, use.from_disk) == (held, 3, EXPERTS - 3 - held)
    assert layers.memory.pool._slot == before  # a prompt uses everything once and evicts nothing


def test_a_failing_read_leaves_the_pool_whole() -> None:
    layers = Layers(shares(slots=4, in_ram=0, group=2))
    bank, pool = layers.spread[0], layers.memory.pool
    missing = [e for e in range(EXPERTS) if (0, e) not in pool._slot][:2]
    asked = (torch.ones(1, SHAPE.hidden), torch.tensor([missing]), torch.ones(1, 2), None)
    pack, bank._pack = bank._pack, lambda e: (_ for _ in ()).throw(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        bank(*asked)
    many = (
        torch.ones(FEW_TOKENS + 1, SHAPE.hidden),
        torch.tensor([missing] * (FEW_TOKENS + 1)),
        torch.ones(97, 2),
        None,
    )
    with pytest.raises(OSError, match="gone"):
        bank(*many)
    bank._pack = pack
    layers.check()
    for arguments in (asked, many):
        assert torch.equal(bank(*arguments), layers.whole[0](*arguments))
    layers.check()


# ---------------------------------------------------------------- hand-overs


def test_a_half_is_filled_only_after_its_last_reader_and_read_only_after_it_is_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replays what the streams were given: every wait must name a mark that was set after the work it stands for."""
    log: list[tuple[str, str, int]] = []  # (stream, what, half or mark)
    stream = ["main"]

    class FakeMark:
        made = 0

        def __init__(self, device: torch.device) -> None:
            self.name, FakeMark.made = FakeMark.made, FakeMark.made + 1

        def set(self) -> None:
            log.append((stream[0], "set", self.name))

        def let_stream_wait(self) -> None:
            log.append((stream[0], "wait", self.name))

    class FakeStream:
        def __init__(self, device: torch.device) -> None:
            pass

        @contextmanager
        def current(self) -> Iterator[None]:
            stream[0] = "side"
            yield
            stream[0] = "main"

    monkeypatch.setattr(spread_module, "Mark", FakeMark)
    monkeypatch.setattr(spread_module, "SideStream", FakeStream)
    staging = Staging(2, SHAPE, CPU)
    halves = staging._halves

    def copy(e: int, place: tuple[object, int]) -> None:
        log.append((stream[0], "fill", next(n for n, half in enumerate(halves) if half is place[0])))

    for groups in ([[0, 1], [2], [], [3, 4]], [[5]], [[6], [7, 8]]):
        for half in staging.through(groups, copy):
            log.append((stream[0], "read", next(n for n, each in enumerate(halves) if each is half)))

    def known(at: int) -> set[int]:
        """Positions in the log that are over when the work at `at` runs: earlier on its stream, or before a mark waited for."""
        over: set[int] = set()
        for n in range(at - 1, -1, -1):
            if log[n][0] == log[at][0] and n not in over:
                over.add(n)
                if log[n][1] == "wait":
                    marks = [m for m in range(n) if log[m][1] == "set" and log[m][2] == log[n][2]]
                    over |= {marks[-1], *known(marks[-1])} if marks else set()
        return over

    for n, (_, what, half) in enumerate(log):
        if what in ("fill", "read"):
            other = "read" if what == "fill" else "fill"
            assert {m for m in range(n) if log[m][1:] == (other, half)} <= known(n), (n, log)
    fills = [n for n, entry in enumerate(log) if entry[1] == "fill"]
    reads = [n for n, entry in enumerate(log) if entry[1] == "read"]
    assert fills[2] < reads[0] and all(log[n][0] == "side" for n in fills)  # the second group is under way


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("late", ["computation", "copies", "neither"])
def test_hand_overs_on_a_gpu_when_one_side_is_late(monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """A half overwritten too early, or read too early, would show: nothing else waits between the layers."""
    layers = Layers(shares(12, 40, 4, layers=3, experts=24), "cuda", ExpertShape(512, 1024))
    assert all(slab.gate_up.codes.is_pinned() for slab in layers.memory.store._slabs)
    fill_room, fill_half = Fp8Room.fill, Staging._fill

    def slow_room(room: Fp8Room, places: list[Place]) -> tuple[Fp8Matrix, Fp8Matrix]:
        torch.cuda._sleep(5_000_000)
        return fill_room(room, places)

    def slow_half(staging: Staging, *arguments: Any) -> None:
        with staging._side.current():
            torch.cuda._sleep(5_000_000)
        fill_half(staging, *arguments)

    if late == "computation":
        monkeypatch.setattr(Fp8Room, "fill", slow_room)
    elif late == "copies":
        monkeypatch.setattr(Staging, "_fill", slow_half)
    random = torch.Generator("cuda").manual_seed(0)
    results = []
    for tokens in [200, 1, 300, 1, 1, FEW_TOKENS, 150, 2]:
        for layer in range(3):
            x = torch.randn(tokens, 1024, generator=random, device="cuda").bfloat16()
            wanted = torch.rand(tokens, 24, generator=random, device="cuda")
            ids = (wanted[:, :12] if tokens <= FEW_TOKENS else wanted).topk(TOPK).indices  # no more than slots
            asked = (x, ids, torch.rand(tokens, TOPK, generator=random, device="cuda"), 10.0)
            results.append((asked, layer, layers.spread[layer](*asked)))
    torch.cuda.synchronize()
    for asked, layer, actual in results:
        assert torch.equal(actual, layers.whole[layer](*asked)), f"layer {layer}, {len(asked[0])} tokens"
    layers.check()


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(("room", "ram"), [(900_000, 10**9), (1_300_000, 800_000), (700_000, 131_072)])
def test_what_is_allocated_is_what_was_planned(room: int, ram: int) -> None:
    facts = OnGpu(SHAPE, LAYERS, EXPERTS, TOPK)
    plan = place_experts(ExpertFacts(facts.count * SHAPE.packed_bytes, True, facts), [1], room, ram, "GPU")
    assert plan.shares is not None
    layers = Layers(plan.shares)
    memory = layers.memory
    stacks = [memory.pool.stack, *memory.staging._halves]
    on_device = sum(part.nbytes for stack in stacks for matrix in stack for part in matrix) + memory.room.nbytes
    planned = {tier: sum(line.nbytes for line in plan.lines if line.tier == tier) for tier in ("GPU", "RAM", "disk")}
    scales = plan.shares.group * (facts.fp8_bytes - SHAPE.fp8_bytes)  # made while multiplying
    assert on_device + scales == planned["GPU"] <= room
    assert memory.store.nbytes == planned["RAM"] <= ram
    known = set(memory.pool._slot) | set(memory.store._kept)
    assert planned["disk"] == (facts.count - len(known)) * SHAPE.packed_bytes
    assert set(layers.released) == {(layer, e) for layer in range(LAYERS) for e in range(EXPERTS)}


@pytest.mark.parametrize("experts", [0, 1, 79, 80, 81, 11_008])
def test_slabs(experts: int) -> None:
    """Powers of two, as pinned memory comes; little is lost in many."""
    shape = ExpertShape(2048, 4096)
    count, each, slab = slabs_for(experts, shape)
    assert slab.bit_count() == 1 and each * shape.packed_bytes <= slab
    assert count * each >= experts > (count - 1) * each or experts == count == 0
    if experts == 11_008:
        assert count * slab <= 1.01 * experts * shape.packed_bytes


def test_experts_kept_in_ram_are_read_once() -> None:
    store, target = ExpertStore(2, SHAPE, CPU), empty_stack(1, SHAPE, CPU)
    reads = []

    def read(place: tuple[object, int]) -> None:
        reads.append(place)

    store.keep((0, 0), read)
    for _ in range(3):
        store.copy((0, 0), read, (target, 0))
        store.copy((0, 1), read, (target, 0))
    assert len(reads) == 4 and store.keeps((0, 0)) and not store.keeps((0, 1))


# ---------------------------------------------------------------- whole models


SMALL = EngineSettings(device="cuda", cache_tokens=2048, max_batch=2, prefill_chunk_tokens=1)


def plan_of_a_small_gpu(path: Path, ram: int, monkeypatch: pytest.MonkeyPatch) -> MemoryPlan:
    """A GPU that has room for about half of the experts."""

    def plan(gpu: int) -> MemoryPlan:
        return describe(path, SMALL, Machine(ram, ram, (Gpu("small", gpu, gpu),))).plan

    with monkeypatch.context() as patch:
        patch.setattr("engine.runtime.can_run", lambda *_: True)
        wide = plan(1 << 34)
        packed, workspace = (
            next(line.nbytes for line in wide.lines if line.label == label) for label in ("experts", "FP8 workspace")
        )
        assert wide.experts == "packed" and wide.total_bytes("RAM") == 0
        return plan(int((wide.total_bytes("GPU") - workspace - packed // 2) / 0.92))


@pytest.mark.parametrize("ram", [1 << 33, 1 << 18], ids=["much RAM", "little RAM"])
def test_a_spread_model_gives_the_numbers_of_a_resident_one(
    oracle_case: Callable[..., OracleCase], monkeypatch: pytest.MonkeyPatch, ram: int
) -> None:
    """The plan of a GPU, carried out with the CPU in its place: prompts in long and short chunks, and decoding."""
    case = oracle_case("deepseek_v4")
    plan = plan_of_a_small_gpu(case.path, ram, monkeypatch)
    shares = plan.shares
    assert plan.experts == "spread" and shares is not None
    assert 0 < shares.slots < shares.count and (shares.in_ram == shares.count) == (ram > 1 << 20)
    assert plan.total_bytes("GPU") <= plan.budget_bytes and plan.total_bytes("RAM") <= plan.ram_budget_bytes
    settings = EngineSettings(device="cpu", cache_tokens=2048)
    described = describe(case.path, settings)

    def opened(shares: Shares) -> Runtime:
        changed = replace(described, plan=replace(described.plan, experts="spread", shares=shares))
        monkeypatch.setattr("engine.runtime.describe", lambda *_: changed)
        return open_runtime(case.path, settings)

    everything = opened(replace(shares, slots=shares.count, group=shares.count))
    spread = opened(shares)
    for chunk in (120, 50):
        few, all_held = (scored(runtime, case, chunk) for runtime in (spread, everything))
        compare.assert_matches(case.tensors, few)
        assert few.keys() == all_held.keys() and all(torch.equal(few[name], all_held[name]) for name in few)
    monkeypatch.setattr(OPERATORS["mxfp4_experts"], "_forced", None)  # the kernel that would be chosen
    compare.assert_matches(case.tensors, scored(spread, case, 200, greedy=ram > 1 << 20))
    assert spread.expert_use is not None and everything.expert_use is not None
    assert everything.expert_use.hit_rate == 1.0 > spread.expert_use.hit_rate > 0.2
    assert (spread.expert_use.from_disk > 0) == (ram < 1 << 20)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_spread_checkpoint_on_a_gpu(oracle_case: Callable[..., OracleCase], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, from a plan for less memory than there is."""
    case = oracle_case("deepseek_v4")
    resident = open_runtime(case.path, SMALL)
    free = int(plan_of_a_small_gpu(case.path, 1 << 33, monkeypatch).budget_bytes / 0.92) + 1
    monkeypatch.setattr("engine.runtime.probe_machine", lambda: Machine(1 << 33, 1 << 33, (Gpu("small", free, free),)))
    spread = open_runtime(case.path, SMALL)
    assert (resident.described.plan.experts, spread.described.plan.experts) == ("packed", "spread")
    for chunk in (120, 50):
        few, whole = (scored(runtime, case, chunk) for runtime in (spread, resident))
        assert torch.equal(few["logits"], whole["logits"])
    assert spread.expert_use is not None and 0.2 < spread.expert_use.hit_rate < 1.0


def test_the_benchmark_runs() -> None:
    lines = measure(CPU, SHAPE, shares(20, 72, 2, layers=2, experts=36), [FEW_TOKENS + 1])
    assert [line.split(",")[0] for line in lines[2:]] == ["1 token"] * 3 + [f"{FEW_TOKENS + 1} tokens"]
    assert [re.findall(r"([\d.]+) experts copied", line) for line in lines[2:5]] == [["0.0"], ["3.0"], ["6.0"]]


def test_damaged_scales_are_found_at_start(
    oracle_case: Callable[..., OracleCase], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also in experts that stay in the files."""
    folder = copy_of(oracle_case("deepseek_v4").path, tmp_path / "damaged")
    patch(folder, "layers.3.ffn.experts.5.w2.scale", 7, b"\xff")
    described = describe(folder, EngineSettings(device="cpu"))
    plan = replace(described.plan, experts="spread", shares=Shares(3, 0, 2, 5, 40))
    monkeypatch.setattr("engine.runtime.describe", lambda *_: replace(described, plan=plan))
    with pytest.raises(BadCheckpoint, match=r"layers\.3\.ffn\.experts\.5\.w2\.scale"):
        open_runtime(folder, EngineSettings(device="cpu"))
