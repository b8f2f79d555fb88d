"""PROMPT.json for comparisons: the file a tool writes comes back under the oracle's names, and bad ones get a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from engine.errors import BadRequest, EngineError
from engine.scoring import read_prompt, score_file
from engine.settings import EngineSettings
from tests.engine.helpers import is_one_sentence
from tests.support import compare
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
CPU = EngineSettings(device="cpu", prefill_chunk_tokens=100)


def test_a_scored_file_matches_the_oracle(oracle_case: GetCase, tmp_path: Path) -> None:
    case = oracle_case("hy_v4_vl")
    prompt = {
        "input_ids": case.input_ids.tolist(),
        "images": [str(path) for path in case.image_paths],
        "greedy_lengths": [127],
        "greedy_steps": 16,
    }
    (tmp_path / "p.json").write_text(json.dumps(prompt))
    score_file(case.path, tmp_path / "p.json", tmp_path / "out.safetensors", CPU)
    actual = load_file(tmp_path / "out.safetensors")
    assert {"logits", "greedy.127.ids", "image_features", "topk.0", "router.1.ids", "final_hidden"} <= set(actual)
    compare.assert_matches(case.tensors, actual)


BAD = {
    "no file": None, "not json": "{", "a list": "[]", "no ids": "{}", "empty": '{"input_ids": []}',
    "negative": '{"input_ids": [-1]}', "text": '{"input_ids": "abc"}', "infinite": '{"input_ids": [Infinity]}',
    "nested": "[" * 100_000, "long greedy": '{"input_ids": [1], "greedy_lengths": [2]}',
    "no steps": '{"input_ids": [1], "greedy_steps": 0}', "null": '{"input_ids": null}',
    "images null": '{"input_ids": [1], "images": null}', "bytes": b"\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_bad_prompt_files(tmp_path: Path, case: str) -> None:
    content = BAD[case]
    if content is not None:
        (tmp_path / "p.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadRequest, match=r"p\.json") as caught:
        read_prompt(tmp_path / "p.json")
    assert is_one_sentence(caught.value)


def test_prompts_that_do_not_fit_the_model(oracle_case: GetCase, tmp_path: Path) -> None:
    case = oracle_case("hy_v4")
    for content in ({"input_ids": [9999]}, {"input_ids": [512]}, {"input_ids": [1], "images": ["x.png"]}):
        (tmp_path / "p.json").write_text(json.dumps(content))
        with pytest.raises(EngineError) as caught:
            score_file(case.path, tmp_path / "p.json", tmp_path / "out.safetensors", CPU)
        assert is_one_sentence(caught.value)
        assert not (tmp_path / "out.safetensors").exists()


def test_a_result_that_cannot_be_written(oracle_case: GetCase, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"input_ids": [1, 2, 3]}')
    with pytest.raises(EngineError, match="Cannot write") as caught:
        score_file(oracle_case("hy_v4").path, tmp_path / "p.json", tmp_path / "no" / "out.safetensors", CPU)
    assert "\n" not in str(caught.value)
