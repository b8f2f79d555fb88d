"""DeepSeek-V4 against transformers: window, compressed entries, selections, streams, hash layers; mistakes must show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.model import compressed_attention, compressor, hyper_connections
from engine.model.spec import CompressedAttention, Layer, ModelSpec, Moe
from tests.engine.family_runner import Running, load_running, replaced
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
WINDOW = 32


@pytest.fixture(scope="module")
def case(oracle_case: GetCase) -> OracleCase:
    return oracle_case("deepseek_v4")


@pytest.fixture(scope="module")
def running(case: OracleCase) -> Running:
    return load_running(case.path)


def test_every_tensor_is_accounted_for(running: Running, case: OracleCase) -> None:
    check_complete(running, case)


def test_every_decision_is_the_references(running: Running, case: OracleCase) -> None:
    check_decisions(running, case, [1, 3])


def test_greedy_answers_are_the_references(running: Running, case: OracleCase) -> None:
    check_greedy(running, case)


@pytest.mark.parametrize("size", [3, 7, 64])
def test_how_a_prompt_is_cut_changes_nothing(running: Running, case: OracleCase, size: int) -> None:
    check_cut(running, case, size)


def test_token_by_token_is_the_same(running: Running, case: OracleCase) -> None:
    check_cut(running, case, 1, tokens=133)


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5, WINDOW - 1, WINDOW, WINDOW + 1, 127, 128, 129, 255, 256])
def test_boundaries_of_windows_and_entries(running: Running, case: OracleCase, first: int) -> None:
    check_cut(running, case, [first, 1, 1, 1, 300])


def test_several_hundred_tokens(oracle_case: GetCase) -> None:
    long = oracle_case("deepseek_v4", tokens=600)
    running = load_running(long.path)
    check_decisions(running, long, [1, 3])
    check_cut(running, long, [383, 2, 150])


def test_a_batch_of_unequal_lengths_equals_one_by_one(running: Running, case: OracleCase) -> None:
    check_batch(running, case, [[1, 2, 3, 4], [64, 65, 130, 131], [33, 97, 98, 99], [127, 128, 257], [3, 130, 131]])


def test_decoding_together_equals_one_by_one(running: Running, case: OracleCase) -> None:
    check_batch(running, case, [[n, n + 1, n + 2, n + 3, n + 4] for n in (2, 31, 126, 253)])


@pytest.mark.parametrize("at", [1, 5, 30, 127, 128, 130])
def test_cutting_back_is_exact(running: Running, case: OracleCase, at: int) -> None:
    check_rewind(running, case, at, at + 70)


def test_a_second_conversation_in_the_same_place_starts_clean(running: Running, case: OracleCase) -> None:
    check_cut(running, case, 257)
    check_cut(running, case, [2, 255])


def test_base_checkpoints_with_fp8_experts(oracle_case: GetCase) -> None:
    base = oracle_case("deepseek_v4", base=True)
    running = load_running(base.path)
    check_complete(running, base)
    check_decisions(running, base, [1, 3])


def test_state_is_declared(running: Running) -> None:
    layout = running.cache.layout
    assert not layout.rewindable and layout.page_tokens == 256
    pools = {(p.layer, p.name): p.tokens_per_entry for p in layout.pools}
    assert pools == {
        (1, "entry"): 4,
        (1, "index"): 4,
        (2, "entry"): 128,
        (3, "entry"): 4,
        (3, "index"): 4,
        (4, "entry"): 128,
    }
    frontiers = {(f.layer, f.name): f.shape for f in layout.frontiers}
    assert frontiers[0, "window"] == (WINDOW, 128)
    assert frontiers[1, "entry_frontier"] == (8, 2, 256) and frontiers[1, "index_frontier"] == (8, 2, 128)
    assert frontiers[2, "entry_frontier"] == (128, 2, 128) and (2, "index_frontier") not in frontiers


# ---------------------------------------------------------------- mistakes must show


def _attentions(spec: ModelSpec, change: Callable[[CompressedAttention], CompressedAttention]) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        assert isinstance(layer.attention, CompressedAttention)
        return replace(layer, attention=change(layer.attention))

    return replace(spec, layers=tuple(map(changed, spec.layers)))


def _mlps(spec: ModelSpec, **changes: Any) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        assert isinstance(layer.mlp, Moe)
        return replace(layer, mlp=replace(layer.mlp, **changes))

    return replace(spec, layers=tuple(map(changed, spec.layers)))


def _turn(attention: CompressedAttention, **changes: Any) -> CompressedAttention:
    rope = replace(attention.rope, **changes)
    index = attention.indexer and replace(attention.indexer, rope=rope)
    return replace(attention, rope=rope, indexer=index)


def _half_split(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: _turn(a, style="half_split"))


def _yarn_lost(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: _turn(a, yarn=None))


def _one_theta(spec: ModelSpec) -> ModelSpec:
    other = spec.layers[1].attention.rope
    return _attentions(spec, lambda a: a if a.ratio else replace(a, rope=other))


def _window_too_wide(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: replace(a, window_tokens=a.window_tokens + 1))


def _index_rope_first(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: replace(a, indexer=a.indexer and replace(a.indexer, rope_at="first")))


def _smaller_topk(spec: ModelSpec) -> ModelSpec:
    return _attentions(spec, lambda a: replace(a, indexer=a.indexer and replace(a.indexer, topk=a.indexer.topk - 1)))


def _shared_expert_unclamped(spec: ModelSpec) -> ModelSpec:
    return _mlps(spec, shared_limit=None)


def _sigmoid_router(spec: ModelSpec) -> ModelSpec:
    return _mlps(spec, scoring="sigmoid")


SPEC_MISTAKES = [
    _half_split, _yarn_lost, _one_theta, _window_too_wide, _index_rope_first, _smaller_topk, _shared_expert_unclamped,
    _sigmoid_router,
]  # fmt: skip


@pytest.mark.parametrize("mistake", SPEC_MISTAKES, ids=lambda m: m.__name__.strip("_"))
def test_a_mistake_in_the_description_shows(case: OracleCase, mistake: Callable[[ModelSpec], ModelSpec]) -> None:
    check_visible(load_running(case.path, change=mistake), case)


Entered = tuple[Tensor, Tensor, Tensor]


def _post_without_factor(enter: Callable[..., Entered], streams: Tensor, *arguments: Any) -> Entered:
    streams, mix, x = enter(streams, *arguments)
    mix[:, : streams.shape[1]] /= 2
    return streams, mix, x


def _comb_transposed(enter: Callable[..., Entered], streams: Tensor, *arguments: Any) -> Entered:
    streams, mix, x = enter(streams, *arguments)
    n = streams.shape[1]
    comb = mix[:, n:].unflatten(1, (n, n)).transpose(1, 2)
    return streams, torch.cat([mix[:, :n], comb.flatten(1)], dim=1), x


def _a_half_of_the_same_window(
    op: Callable[..., Tensor], rows: Tensor, slots: Tensor, bias: Tensor, overlap: bool
) -> Tensor:
    if overlap:
        own = slots[:, slots.shape[1] // 2 :]
        slots = torch.cat([own, own], dim=1)
    return op(rows, slots, bias, overlap)


def _bias_after_the_shuffle(
    op: Callable[..., Tensor], rows: Tensor, slots: Tensor, bias: Tensor, overlap: bool
) -> Tensor:
    return op(rows, slots, bias.roll(bias.shape[1] // 2, dims=1) if overlap else bias, overlap)


def _entries_turned_at_the_last_token(op: Callable[..., Tensor], rope: Any, positions: Tensor) -> Tensor:
    return op(rope, positions + 3)


def _output_not_turned_back(op: Callable[..., Tensor], rope: Any, x: Tensor, angles: Tensor) -> Tensor:
    return x if angles.is_conj() else op(rope, x, angles)


OPERATOR_MISTAKES = [
    (hyper_connections, "mhc_enter", _post_without_factor),
    (hyper_connections, "mhc_enter", _comb_transposed),
    (compressor, "compress_windows", _a_half_of_the_same_window),
    (compressor, "compress_windows", _bias_after_the_shuffle),
    (compressor, "rotation", _entries_turned_at_the_last_token),
    (compressed_attention, "rotate_tail", _output_not_turned_back),
]


@pytest.mark.parametrize(
    ("owner", "name", "mistake"), OPERATOR_MISTAKES, ids=[m[2].__name__[1:] for m in OPERATOR_MISTAKES]
)
def test_a_mistake_in_an_operator_shows(
    running: Running, case: OracleCase, owner: object, name: str, mistake: Callable[..., object]
) -> None:
    with replaced(owner, name, mistake):
        check_visible(running, case)
