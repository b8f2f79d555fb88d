"""DeepSeek-V3.2 and GLM-5 against transformers: selections, grouped routers, YaRN, shared lists; mistakes must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.model.spec import LatentAttention, Layer, ModelSpec, Moe
from tests.engine.family_runner import Running, load_running
from tests.engine.family_runner_checks import (
    check_batch,
    check_complete,
    check_cut,
    check_decisions,
    check_greedy,
    check_rewind,
    check_visible,
)
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
TOPK = 32
OWN_INDEX = {"deepseek_v32": [0, 1, 2, 3], "glm_moe_dsa": [0, 1, 2, 4]}


@pytest.fixture(scope="module", params=list(OWN_INDEX))
def case(request: pytest.FixtureRequest, oracle_case: GetCase) -> OracleCase:
    return oracle_case(request.param)


@pytest.fixture(scope="module")
def running(case: OracleCase) -> Running:
    return load_running(case.path)


def test_every_tensor_is_accounted_for(running: Running, case: OracleCase) -> None:
    check_complete(running, case)


def test_every_decision_is_the_references(running: Running, case: OracleCase) -> None:
    check_decisions(running, case, OWN_INDEX[case.family])


def test_greedy_answers_are_the_references(running: Running, case: OracleCase) -> None:
    check_greedy(running, case)


@pytest.mark.parametrize("size", [7, 64])
def test_how_a_prompt_is_cut_changes_nothing(running: Running, case: OracleCase, size: int) -> None:
    check_cut(running, case, size)


def test_token_by_token_is_the_same(running: Running, case: OracleCase) -> None:
    check_cut(running, case, 1, tokens=70)


@pytest.mark.parametrize("first", [3, 4, 5, TOPK - 1, TOPK, TOPK + 1, 127, 128, 129, 255, 256])
def test_boundaries(running: Running, case: OracleCase, first: int) -> None:
    check_cut(running, case, [first, 1, 300])


def test_a_batch_of_unequal_lengths_equals_one_by_one(running: Running, case: OracleCase) -> None:
    check_batch(running, case, [[1, 2, 3], [64, 65, 200], [33, 97, 98], [129, 257]])


@pytest.mark.parametrize("at", [5, 64, 130])
def test_cutting_back_is_exact(running: Running, case: OracleCase, at: int) -> None:
    check_rewind(running, case, at, at + 70)


def test_glm_in_fp8(oracle_case: GetCase) -> None:
    quantized = oracle_case("glm_moe_dsa", dtype="fp8")
    running = load_running(quantized.path)
    check_complete(running, quantized)
    check_decisions(running, quantized, OWN_INDEX["glm_moe_dsa"])


# ---------------------------------------------------------------- mistakes must show


def _attentions(spec: ModelSpec, change: Callable[[LatentAttention], LatentAttention]) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        assert isinstance(layer.attention, LatentAttention)
        return replace(layer, attention=change(layer.attention))

    return replace(spec, layers=tuple(map(changed, spec.layers)))


def _index(attention: LatentAttention, **changes: Any) -> LatentAttention:
    return replace(attention, indexer=attention.indexer and replace(attention.indexer, **changes))


def _half_split(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: replace(a, rope=replace(a.rope, style="half_split")))


def _other_index_rope(spec: ModelSpec) -> ModelSpec:
    styles = {"half_split": "interleaved", "interleaved": "half_split"}
    return _attentions(
        spec, lambda a: _index(a, rope=a.indexer and replace(a.indexer.rope, style=styles[a.indexer.rope.style]))
    )


def _index_rope_last(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: _index(a, rope_at="last"))


def _smaller_topk(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: _index(a, topk=TOPK - 1))


def _yarn_lost(spec: ModelSpec) -> ModelSpec:
    def plain(a: LatentAttention) -> LatentAttention:
        rope = replace(a.rope, yarn=None)
        return _index(replace(a, rope=rope), rope=replace(rope, style="half_split"))

    return _attentions(spec, plain)


def _scale_without_yarn(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: replace(a, scale=(a.nope_width + a.rope.width) ** -0.5))


def _one_group(spec: ModelSpec) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        if not isinstance(layer.mlp, Moe):
            return layer
        return replace(layer, mlp=replace(layer.mlp, num_groups=1, kept_groups=1))

    return replace(spec, layers=tuple(map(changed, spec.layers)))


def _latent_eps(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: replace(a, latent_eps=1e-5))


def _list_of_the_first_layer(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: a if a.indexer else replace(a, index_source=0))


BOTH = [_half_split, _other_index_rope, _index_rope_last, _smaller_topk, _latent_eps]
MISTAKES = [
    *(("deepseek_v32", mistake) for mistake in (*BOTH, _yarn_lost, _scale_without_yarn, _one_group)),
    *(("glm_moe_dsa", mistake) for mistake in (*BOTH, _list_of_the_first_layer)),
]


@pytest.mark.parametrize(("family", "mistake"), MISTAKES, ids=[f"{f}-{m.__name__[1:]}" for f, m in MISTAKES])
def test_a_mistake_shows(oracle_case: GetCase, family: str, mistake: Callable[[ModelSpec], ModelSpec]) -> None:
    case = oracle_case(family)
    check_visible(load_running(case.path, change=mistake), case)
