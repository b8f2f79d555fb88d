"""Memory of a loaded model: the peak while opening stays within the plan, and less memory never means other answers."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch

from engine.api import EngineSettings
from engine.families import hy_v4
from engine.model.loader import declare, disk_name, narrow_linears
from engine.runtime import describe, open_runtime
from tests.engine.helpers import DEMO, scored
from tests.support import compare
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
ROOT = Path(__file__).resolve().parents[2]
CPU = EngineSettings(device="cpu", cache_tokens=1024)
LARGE = {
    "hidden_size": 512, "moe_intermediate_size": 512, "n_routed_experts": 64, "num_hidden_layers": 8,
    "mlp_layer_types": ["dense"] + ["sparse"] * 7, "indexer_types": ["full", "full"] + ["shared"] * 6,
}  # fmt: skip


def write_large(folder: Path, source: Path, experts: str) -> Path:
    """A Hy4 checkpoint of some hundred MB with random bytes: every tensor where and as the family stores it."""
    folder.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (folder / file).write_bytes((source / file).read_bytes())
    config = json.loads((source / "config.json").read_text()) | LARGE
    (folder / "config.json").write_text(json.dumps(config))
    spec = hy_v4.FAMILY.parse(config)
    header: dict[str, dict[str, object]] = {}
    parts: list[tuple[int, int]] = []  # (bytes, value of each byte or -1 for random)
    end = 0

    def add(name: str, dtype: str, shape: tuple[int, ...], item: float, value: int) -> None:
        nonlocal end
        size = int(prod(shape) * item)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        parts.append((size, value))
        end += size

    for parameter in declare(spec).values():
        name, shape = disk_name(hy_v4.FAMILY, parameter.name), parameter.shape
        if parameter.kind != "expert":
            add(name, "BF16", shape, 2, 0)
        elif experts == "mxfp4":
            add(name, "I8", (shape[0], shape[1] // 2), 1, -1)
            add(f"{name.removesuffix('.weight')}.scale", "F8_E8M0", (shape[0], shape[1] // 32), 1, 115)
    if experts == "bf16":
        for layer in range(1, 8):
            prefix = f"model.layers.{layer}.mlp.experts"
            add(f"{prefix}.gate_up_proj", "BF16", (64, 1024, 512), 2, 0)
            add(f"{prefix}.down_proj", "BF16", (64, 512, 512), 2, 0)
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        noise = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8).numpy().tobytes()
        for size, value in parts:
            for begin in range(0, size, len(noise)):
                step = min(size - begin, len(noise))
                file.write(noise[:step] if value < 0 else bytes([value]) * step)
    return folder


MEASURE = """
import json, sys
from dataclasses import asdict
from pathlib import Path
import torch
import engine.api
from engine.api import EngineSettings
from engine.runtime import open_runtime
torch.set_num_threads(2)
torch.nn.functional.linear(torch.ones(8, 8), torch.ones(8, 8))
def peak():
    return 1024 * int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
before = peak()
runtime = open_runtime(Path(sys.argv[1]), EngineSettings(device="cpu", cache_tokens=1024))
plan = runtime.described.plan
lines = {line.label: line.nbytes for line in plan.lines if line.tier == "RAM"}
print(json.dumps({"grown": peak() - before, "plan": plan.total_bytes("RAM"), "lines": lines, "experts": plan.experts}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("experts", ["mxfp4", "bf16"])
def test_the_peak_while_opening_stays_within_the_plan(oracle_case: GetCase, tmp_path: Path, experts: str) -> None:
    folder = write_large(tmp_path / "large", oracle_case("hy_v4").path, experts)
    disk = (folder / "model.safetensors").stat().st_size
    assert disk > 150 << 20
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["grown"] <= 1.1 * told["plan"], told
    weights = sum(told["lines"][k] for k in ("dense weights", "experts"))
    slack = 48 << 20  # what torch and the allocator keep the first time they are used
    assert told["grown"] <= 1.1 * weights + slack, f"more than the weights themselves: {told}"


@pytest.mark.parametrize("kernel", [True, False], ids=["with kernel", "without kernel"])
def test_dense_weights_are_kept_as_planned(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> None:
    if not kernel:
        for place in ("engine.runtime.can_run", "engine.model.loader.can_run"):
            monkeypatch.setattr(place, lambda op, device: False)
    runtime = open_runtime(DEMO, CPU)
    transformer, narrow = runtime.model.transformer, torch.bfloat16 if kernel else torch.float32
    assert transformer.embedding.dtype == transformer.layers[0].attention.output.weight.dtype == narrow
    assert transformer.head.dtype == narrow  # stored as float32, but every value is a bfloat16
    parameters = declare(runtime.described.spec)
    known = narrow_linears(runtime.described.tensors.found, parameters, torch.float32, on_gpu=False)
    expected = sum(
        prod(p.shape) * (2 if name in known else {"table": 8}.get(p.kind, 4))
        for name, p in parameters.items()
        if p.kind != "expert" and not name.startswith("vision.")
    )
    assert bool(known) == kernel
    assert runtime.described.plan.lines[0].nbytes == expected


def _budget_for_half_the_experts(path: Path) -> EngineSettings:
    plan = describe(path, CPU).plan
    experts = next(line.nbytes for line in plan.lines if line.label == "experts")
    return replace(CPU, ram_budget_bytes=plan.total_bytes("RAM") - experts // 2)


@pytest.mark.parametrize("kernel", [True, False], ids=["with kernel", "without kernel"])
@pytest.mark.parametrize("experts", ["mxfp4", "mxfp8", "bf16"])
def test_experts_left_in_the_files_give_the_same_answers(
    oracle_case: GetCase, monkeypatch: pytest.MonkeyPatch, experts: str, kernel: bool
) -> None:
    if not kernel:
        for place in ("engine.runtime.can_run", "engine.model.loader.can_run"):
            monkeypatch.setattr(place, lambda op, device: False)
    case = oracle_case("hy_v4_vl", experts=experts)
    narrow = open_runtime(case.path, _budget_for_half_the_experts(case.path))
    assert narrow.described.plan.experts == "mapped"
    wide = open_runtime(case.path, CPU)
    assert wide.described.plan.experts in ("packed", "decoded")
    few, many = (scored(runtime, case, 64) for runtime in (narrow, wide))
    compare.assert_matches(case.tensors, few)
    compare.assert_equal(few["logits"], many["logits"], name="logits")


def test_the_demo_opens_within_its_plan() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(DEMO)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["grown"] <= 1.1 * told["plan"], told
