"""The Day-0 report: what it says of good, damaged, too large and unknown checkpoints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.api import BadCheckpoint, EngineSettings, check_model, report_text
from engine.memory.machine import Machine
from engine.report import selfcheck
from tests.support.oracle import OracleCase

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("hy_v4_vl", "hy_v4", "deepseek_v4", "deepseek_v32", "glm_moe_dsa")
CPU = EngineSettings(device="cpu")


def edited(case: OracleCase, folder: Path, **changes: object) -> Path:
    """A copy of a case whose config differs; None removes a key."""
    shutil.copytree(case.path, folder)
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        if value is None:
            config.pop(key)
        else:
            config[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_good_checkpoints_would_run(family: str, oracle_case: Callable[..., OracleCase]) -> None:
    case = oracle_case(family)
    report = check_model(case.path, CPU)
    assert report.would_run and not report.problems
    assert report.self_check is not None
    assert 0 <= report.self_check.difference < 1e-4 and report.self_check.decode_ms > 0
    assert report.tensors["missing"] == report.tensors["surplus"] == report.tensors["wrong"] == 0
    assert report.tensors["needed"] == report.tensors["found"] > 50
    assert report.tensors["ignored"] > 0  # the multi-token-prediction layer
    assert sum(report.layers.values()) == 3 * case.text_config["num_hidden_layers"]
    used = sum(report.bytes_by_kind.values())
    assert 0.5 < used / sum(p.stat().st_size for p in case.path.glob("*.safetensors")) < 1
    text = report_text(report)
    for word in (report.family, "sparse_attention", "write_latents", "verdict", "this model would run here"):
        assert str(word) in text
    json.dumps(report.as_json())


def test_missing_and_surplus_tensors_are_named(oracle_case: Callable[..., OracleCase], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = edited(oracle_case("hy_v4"), tmp_path / "m")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name = "model.layers.3.self_attn.o_proj.weight"
    file = index["weight_map"].pop(name)
    tensors = load_file(folder / file)
    tensors["stranger.weight"] = tensors.pop(name)
    index["weight_map"]["stranger.weight"] = file
    save_file(tensors, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    report = check_model(folder, CPU)
    assert not report.would_run and report.self_check is None
    assert report.tensor_examples["missing"] == [name]
    assert report.tensor_examples["surplus"] == ["stranger.weight"]
    assert name in report.problems[0]


def test_unknown_model_type_gets_its_nearest_family(oracle_case: Callable[..., OracleCase], tmp_path: Path) -> None:
    folder = edited(oracle_case("deepseek_v4"), tmp_path / "m", model_type="deepseek_v5", wormhole_depth=3)
    report = check_model(folder, CPU)
    assert not report.would_run and report.nearest is not None
    assert "deepseek_v5" in report.problems[0]
    assert report.nearest.family == "deepseek_v4" and report.nearest.shared_names == 1
    assert report.nearest.unknown_keys == ["wormhole_depth"]
    text = report_text(report)
    assert "wormhole_depth" in text and "nearest" in text and "would not run" in text


def test_unknown_names_are_shown_as_patterns(oracle_case: Callable[..., OracleCase], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = edited(oracle_case("glm_moe_dsa"), tmp_path / "m", model_type="glm_next")
    for path in folder.glob("*.safetensors"):
        tensors = {name.replace("self_attn.o_proj", "self_attn.out"): t for name, t in load_file(path).items()}
        save_file(tensors, path)
    index = (folder / "model.safetensors.index.json").read_text().replace("self_attn.o_proj", "self_attn.out")
    (folder / "model.safetensors.index.json").write_text(index)
    nearest = check_model(folder, CPU).nearest
    assert nearest is not None
    assert nearest.unknown_names == ["model.layers.N.self_attn.out.weight"]
    assert nearest.absent_names == ["model.layers.N.self_attn.o_proj.weight"]


def test_unknown_key_of_a_known_family_is_one_problem(oracle_case: Callable[..., OracleCase], tmp_path: Path) -> None:
    folder = edited(oracle_case("hy_v4"), tmp_path / "m", attention_twist=True)
    report = check_model(folder, CPU)
    assert not report.would_run and "attention_twist" in report.problems[0]


def test_too_small_machine_is_a_problem_with_numbers(oracle_case: Callable[..., OracleCase]) -> None:
    report = check_model(oracle_case("hy_v4").path, CPU, Machine(1 << 20, 1 << 20))
    assert not report.would_run and "MiB" in report.problems[0] and report.self_check is None


def test_kernels_that_differ_from_the_reference_are_a_problem(
    oracle_case: Callable[..., OracleCase], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = selfcheck._run
    runs: list[int] = []

    def lying(*arguments: object) -> object:
        logits, *times = honest(*arguments)  # type: ignore[arg-type]
        runs.append(1)
        return (logits * (1.001 if len(runs) == 1 else 1.0), *times)

    monkeypatch.setattr(selfcheck, "_run", lying)
    report = check_model(oracle_case("hy_v4").path, CPU)
    assert not report.would_run and "differ from the reference" in report.problems[0]


def test_damaged_weights_are_found_by_running(oracle_case: Callable[..., OracleCase], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = edited(oracle_case("hy_v4"), tmp_path / "m")
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        if "model.layers.0.input_layernorm.weight" in tensors:
            tensors["model.layers.0.input_layernorm.weight"][:] = float("inf")
        save_file(tensors, path)
    report = check_model(folder, CPU)
    assert not report.would_run and "not finite" in report.problems[0]


def test_nothing_to_examine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint):
        check_model(tmp_path, CPU)


def test_command_line_exit_codes_and_json(oracle_case: Callable[..., OracleCase], tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "app", "check", *arguments, "--device", "cpu"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    good = run(str(oracle_case("hy_v4").path), "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["would_run"] is True
    unknown = run(str(edited(oracle_case("hy_v4"), tmp_path / "m", model_type="other")))
    assert unknown.returncode == 1 and "nearest" in unknown.stdout and not unknown.stderr
    nothing = run(str(tmp_path / "nowhere"))
    assert nothing.returncode == 2 and nothing.stderr.count("\n") == 1
