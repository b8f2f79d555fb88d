"""The page about new families is true: its example reads a checkpoint and computes the reference's logits."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import engine.families
from engine.families.base import Family
from tests.engine.family_runner import load_running
from tests.engine.family_runner_checks import check_complete, check_cut
from tests.engine.helpers import copy_of
from tests.support.oracle import OracleCase

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "new-family.md").read_text(encoding="utf-8")


def _example() -> Family:
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "FAMILY = Family(" in block)
    module = types.ModuleType("example_family")
    exec(compile(code, "docs/new-family.md", "exec"), module.__dict__)
    family = module.FAMILY
    assert isinstance(family, Family)
    return family


def test_the_example_runs(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("glm_moe_dsa")
    own = copy_of(case.path, tmp_path / "example")
    config = dict(case.config)
    for key in ("index_topk_freq", "index_skip_topk_offset"):
        del config[key]
    config.update(model_type="example_dsa", indexer_types=["full", "full", "full", "shared", "full", "shared"])
    (own / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(engine.families, "FAMILIES", (*engine.families.FAMILIES, _example()))
    running = load_running(own)
    assert running.family.name == "example"
    check_complete(running, case)
    check_cut(running, case, [100, 1, 200])


def test_every_file_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:engine|tests|docs)/[\w/.]*)`", PAGE))
    assert len(named) > 8
    assert not [name for name in named if not (ROOT / name).exists()]
