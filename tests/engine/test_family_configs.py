"""Configs that a family must refuse in one sentence that names the fault, and the rules it reads from good ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.checkpoint.directory import Checkpoint
from engine.errors import BadCheckpoint, EngineError, UnsupportedModel
from engine.families import find_family
from engine.families.base import Config
from engine.model.loader import match_tensors
from engine.model.spec import LatentAttention
from tests import published
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
_YARN = {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024}

REFUSED: list[tuple[str, Config, str]] = [
    ("deepseek_v4_flash", {"compress_ratios": [0, 0, 4, 64] * 11}, "compress_ratios"),
    ("deepseek_v4_flash", {"compress_ratios": [0, 4, 128]}, "compress_ratios"),
    ("deepseek_v4_flash", {"compress_ratios": None}, "compress_ratios"),
    ("deepseek_v4_flash", {"compress_rate_hca": 8}, "compress_rate_hca"),
    ("deepseek_v4_flash", {"num_hash_layers": 44}, "num_hash_layers"),
    ("deepseek_v4_flash", {"index_topk": 262145}, "index_topk"),
    ("deepseek_v4_flash", {"max_position_embeddings": 1024}, "index_topk"),
    ("deepseek_v4_flash", {"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ("deepseek_v4_flash", {"expert_dtype": "int3"}, "expert_dtype"),
    ("deepseek_v4_flash", {"scoring_func": "sigmoid"}, "scoring_func"),
    ("deepseek_v4_flash", {"n_group": 8}, "n_group"),
    ("deepseek_v4_flash", {"rope_scaling": {**_YARN, "mscale_all_dim": 1.0, "mscale": 1.0}}, "mscale"),
    ("deepseek_v4_flash", {"rope_scaling": {**_YARN, "type": "longrope"}}, "longrope"),
    ("deepseek_v4_flash", {"rope_scaling": {**_YARN, "temperature": 2}}, "temperature"),
    ("deepseek_v4_flash", {"o_groups": 7}, "o_groups"),
    ("deepseek_v4_flash", {"qk_rope_head_dim": 130}, "index_head_dim"),
    ("deepseek_v4_flash", {"qk_rope_head_dim": 63}, "qk_rope_head_dim"),
    ("hy4_preview", {"index_topk": 262145}, "index_topk"),
    ("deepseek_v4_flash", {"num_experts_per_tok": 257}, "experts"),
    ("deepseek_v4_flash", {"num_key_value_heads": 8}, "num_key_value_heads"),
    ("deepseek_v4_flash", {"vision_n_layers": 2}, "vision_"),
    ("deepseek_v4_flash", {"hidden_size": "4096"}, "hidden_size"),
    ("deepseek_v32", {"rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.707}}, "mscale"),
    ("deepseek_v32", {"rope_scaling": _YARN}, "mscale"),
    ("deepseek_v32", {"n_group": 7}, "groups"),
    ("deepseek_v32", {"topk_group": 9}, "groups"),
    ("deepseek_v32", {"index_topk": 163841}, "index_topk"),
    ("deepseek_v32", {"topk_method": "greedy"}, "topk_method"),
    ("deepseek_v32", {"swiglu_limit": 7.0}, "swiglu_limit"),
    ("deepseek_v32", {"num_hidden_layers": 0}, "num_hidden_layers"),
    ("glm_5_2", {"indexer_rope_interleave": False}, "indexer_rope_interleave"),
    ("glm_5_2", {"indexer_types": ["shared"] * 78}, "shared"),
    ("glm_5_2", {"indexer_types": ["full"] * 5}, "indexer_types"),
    ("glm_5_2", {"indexer_types": ["half"] * 78}, "indexer_types"),
    ("glm_5_2", {"index_topk_pattern": "FSX" * 26}, "index_topk_pattern"),
    ("glm_5_2", {"rope_parameters": {**_YARN, "rope_theta": 1e6, "mscale": 1.0, "mscale_all_dim": 1.0}}, "YaRN"),
    ("glm_5_2", {"eos_token_id": ["</s>"]}, "eos_token_id"),
    ("glm_5_2", {"quantization_config": "fp8"}, "quantization_config"),
]  # fmt: skip


def _one_sentence(error: EngineError, *words: str) -> None:
    text = str(error)
    assert text.endswith(".") and "\n" not in text and all(word in text for word in words), text


@pytest.mark.parametrize(("name", "changes", "word"), REFUSED, ids=[f"{n}-{next(iter(c))}-{w}" for n, c, w in REFUSED])
def test_a_config_that_cannot_be_computed_is_refused(name: str, changes: dict[str, Any], word: str) -> None:
    config = {**published.load(name), **changes}
    with pytest.raises(UnsupportedModel) as refusal:
        find_family(config).parse(config)
    _one_sentence(refusal.value, word)


def _own_index(changes: dict[str, Any]) -> list[int]:
    config = published.load("glm_5_0")
    config.update(num_hidden_layers=8, **changes)
    attentions = [layer.attention for layer in find_family(config).parse(config).layers]
    for number, attention in enumerate(attentions):
        assert isinstance(attention, LatentAttention)
        assert attention.index_source == max(i for i in range(number + 1) if attentions[i].indexer)
    return [i for i, attention in enumerate(attentions) if attention.indexer]


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"index_topk_freq": 3}, [0, 1, 4, 7]),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, [0, 1, 2, 6]),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 0}, [1, 3, 5, 7]),
        ({"index_topk_pattern": "FSSFSFFS"}, [0, 3, 5, 6]),
        ({"index_topk_pattern": "FSSFSFFS", "index_topk_freq": 2}, [0, 3, 5, 6]),
        ({"indexer_types": ["full", *["shared"] * 6, "full"], "index_topk_pattern": "FFFFFFFF"}, [0, 7]),
    ],
)
def test_which_layers_own_an_index(changes: dict[str, Any], own: list[int]) -> None:
    if own[0] != 0:
        with pytest.raises(UnsupportedModel, match="none to share"):
            _own_index(changes)
    else:
        assert _own_index(changes) == own


def _refusal_of(case: OracleCase, changes: dict[str, Any], drop: str = "") -> BadCheckpoint:
    checkpoint = Checkpoint(case.path)
    checkpoint.config = {k: v for k, v in {**checkpoint.config, **changes}.items() if not (drop and k.startswith(drop))}
    family = find_family(checkpoint.config)
    with pytest.raises(BadCheckpoint) as refusal:
        match_tensors(checkpoint, family, family.parse(checkpoint.config)).require_complete(checkpoint)
    return refusal.value


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hash_layers": 2}, ["layers.1.ffn.gate.tid2eid"]),
        ({"num_hash_layers": 0}, ["layers.0.ffn.gate.bias"]),
        ({"num_hidden_layers": 4}, ["layers.4"]),
        ({"compress_ratios": [0, 4, 4, 4, 128, 0]}, ["layers.2.attn"]),
        ({"compress_ratios": [0, 4, 0, 4, 128, 0]}, ["layers.2.attn"]),
        ({"moe_intermediate_size": 64}, ["shape", "config.json"]),
        ({"o_lora_rank": 64}, ["shape", "config.json"]),
    ],
)
def test_a_config_that_contradicts_its_tensors_is_refused(
    oracle_case: GetCase, changes: dict[str, Any], words: list[str]
) -> None:
    _one_sentence(_refusal_of(oracle_case("deepseek_v4"), changes), *words)


def test_vision_tensors_without_vision_config_and_the_reverse(oracle_case: GetCase) -> None:
    sees, reads = oracle_case("deepseek_v4_vision"), oracle_case("deepseek_v4")
    _one_sentence(_refusal_of(sees, {}, drop="vision_"), "not part of this model")
    vision = {k: v for k, v in sees.config.items() if k.startswith("vision_")}
    _one_sentence(_refusal_of(reads, vision), "lacks the tensor")


def test_more_layers_than_tensors(oracle_case: GetCase) -> None:
    _one_sentence(_refusal_of(oracle_case("glm_moe_dsa"), {"num_hidden_layers": 8}), "lacks the tensor model.layers.7")
    _one_sentence(_refusal_of(oracle_case("deepseek_v32"), {"num_hidden_layers": 3}), "not part of this model")
