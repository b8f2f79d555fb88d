"""Hy4 against transformers: logits, selections, routers, pictures, greedy answers; and that mistakes would show."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import engine.model.rope as rope_module
from engine.api import Engine, EngineSettings
from engine.families import hy_v4
from engine.generation.request import Request
from engine.generation.sampler import Sampler, Sampling
from engine.model.spec import LatentAttention, Layer, ModelSpec, Moe
from engine.runtime import Runtime, open_runtime
from tests.engine.helpers import Reading, reading_of, scored, step
from tests.support import compare
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
GetRuntime = Callable[[OracleCase], Runtime]
SETTINGS = [
    ("hy_v4_vl", {}),
    ("hy_v4", {}),
    ("hy_v4_vl", {"experts": "bf16"}),
    ("hy_v4_vl", {"experts": "mxfp8"}),
    ("hy_v4", {"experts": "bf16"}),
    ("hy_v4", {"experts": "mxfp8", "mxfp8_names": "modelopt"}),
]
IDS = ["vl-mxfp4", "text-mxfp4", "vl-bf16-fused", "vl-mxfp8", "text-bf16-fused", "text-mxfp8-modelopt"]
every_layout = pytest.mark.parametrize(("family", "options"), SETTINGS, ids=IDS)
TOPK = 32  # index_topk of the cases


@every_layout
def test_every_decision_and_greedy_answer_is_the_references(
    oracle_case: GetCase, runtime_of: GetRuntime, family: str, options: dict[str, str]
) -> None:
    case = oracle_case(family, **options)
    actual = scored(runtime_of(case), case, len(case.input_ids), greedy=True)
    wanted = {"logits", "final_hidden", "topk.0", "topk.1", "topk.5", "router.1.ids", "router.6.weights"}
    wanted |= {f"greedy.{n}.{kind}" for n in case.prefix_lengths for kind in ("ids", "logits")}
    if family == "hy_v4_vl":
        wanted |= {"pixel_values", "image_grid_thw", "image_features", "position_ids", "position_delta"}
    assert wanted <= set(actual)
    assert all(len(actual[f"greedy.{n}.ids"]) == 16 for n in case.prefix_lengths)
    compare.assert_matches(case.tensors, actual)


@pytest.mark.parametrize(("family", "chunk"), [("hy_v4_vl", 1), ("hy_v4_vl", 7), ("hy_v4_vl", 64), ("hy_v4", 64)])
def test_how_a_prompt_is_cut_changes_nothing(
    oracle_case: GetCase, runtime_of: GetRuntime, family: str, chunk: int
) -> None:
    case = oracle_case(family)
    compare.assert_matches(case.tensors, scored(runtime_of(case), case, chunk))


@pytest.mark.parametrize("length", [1, 2, TOPK - 1, TOPK, TOPK + 1, 63, 64, 65, 127, 128, 129, 4 * TOPK + 63])
@pytest.mark.parametrize("family", ["hy_v4_vl", "hy_v4"])
def test_a_prompt_of_any_length_decodes_on_exactly(
    oracle_case: GetCase, runtime_of: GetRuntime, family: str, length: int
) -> None:
    case = oracle_case(family)
    reading = reading_of(runtime_of(case), case)
    parts = [reading.read(length), *(reading.read(length + i) for i in range(1, 5))]
    reading.close()
    expected = case.tensors["logits"][: length + 4]
    compare.assert_close(torch.cat(parts), expected, name="logits", row_factor=compare.ROW_FACTOR)


def test_a_long_prompt_several_times_the_selection_is_exact(oracle_case: GetCase, runtime_of: GetRuntime) -> None:
    case = oracle_case("hy_v4", tokens=520, overrides={"index_topk": 16})
    compare.assert_matches(case.tensors, scored(runtime_of(case), case, 200, greedy=True))


def test_a_batch_of_unequal_lengths_equals_one_by_one(oracle_case: GetCase, runtime_of: GetRuntime) -> None:
    case = oracle_case("hy_v4_vl")
    runtime = runtime_of(case)
    stops = [[1, 2, 3], [64, 65, 200], [33, 97, 98], [129, 257, 257]]  # three steps of four conversations
    together = [reading_of(runtime, case) for _ in stops]
    before = [0] * len(stops)
    for turn in range(3):
        wave = [(r, s[turn]) for r, s in zip(together, stops, strict=True) if s[turn] > r.sequence.length]
        logits, row = step(wave), 0
        for reading, stop in wave:
            number = together.index(reading)
            expected = case.tensors["logits"][before[number] : stop]
            name = f"conversation {number}, tokens {before[number]}..{stop}"
            compare.assert_close(logits[row : row + len(expected)], expected, name=name, row_factor=compare.ROW_FACTOR)
            row, before[number] = row + len(expected), stop
        assert row == len(logits)
    for reading in together:
        reading.close()
    runtime.cache.check_integrity()


def _request(engine: Engine, reading: Reading, length: int, key: str, steps: int) -> Request:
    """The first tokens of an oracle prompt as a request, past the chat template."""
    from engine.chat.detokenizer import AnswerStream

    prompt = reading.prompt
    spans = tuple(s for s in prompt.spans if s.start + s.length <= length)
    place = int(prompt.rope_positions[:, :length].max()) + 1
    cut = replace(
        prompt, ids=prompt.ids[:length], spans=spans, rope_positions=prompt.rope_positions[:, :length],
        next_position=place,
    )  # fmt: skip
    return Request(
        conversation=engine._scheduler.conversation(key),
        prompt=cut,
        sampler=Sampler(Sampling(temperature=0.0), torch.device("cpu")),
        stream=AnswerStream(engine._runtime.tokens, None, None, False, ()),
        eos_ids=frozenset(),
        max_tokens=steps,
    )


def _answered(request: Request) -> list[int]:
    while (event := request.events.get()) is not None:
        assert not isinstance(event, Exception), event
    return request.tokens[len(request.prompt) :]


@pytest.mark.parametrize("family", ["hy_v4_vl", "hy_v4"])
def test_concurrent_sessions_get_the_references_tokens(
    oracle_case: GetCase, open_engine: Callable[..., Engine], family: str
) -> None:
    case = oracle_case(family)
    engine = open_engine(case.path, prefill_chunk_tokens=48, cache_tokens=2048)
    reading = reading_of(engine._runtime, case)
    reading.close()
    lengths = [n for n in case.prefix_lengths for _ in range(2)]
    requests = [_request(engine, reading, n, f"c{i}", 16) for i, n in enumerate(lengths)]
    for request in requests:
        engine._scheduler.submit(request)
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(_answered, requests))
    for length, ids in zip(lengths, answers, strict=True):
        assert ids == case.tensors[f"greedy.{length}.ids"].tolist(), f"after {length} tokens"


# ---------------------------------------------------------------- mistakes must show


def _change_attention(spec: ModelSpec, **changes: object) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        assert isinstance(layer.attention, LatentAttention)
        return replace(layer, attention=replace(layer.attention, **changes))  # type: ignore[arg-type]

    return replace(spec, layers=tuple(changed(layer) for layer in spec.layers))


def _half_split(spec: ModelSpec) -> ModelSpec:
    attention = spec.layers[0].attention
    return _change_attention(spec, rope=replace(attention.rope, style="half_split"))


def _latent_eps(spec: ModelSpec) -> ModelSpec:
    return _change_attention(spec, latent_eps=1e-6)


def _no_clamp(spec: ModelSpec) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        return replace(layer, mlp=replace(layer.mlp, limit=None)) if isinstance(layer.mlp, Moe) else layer

    return replace(spec, layers=tuple(changed(layer) for layer in spec.layers))


def _change_indexer(spec: ModelSpec, **changes: object) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        attention = layer.attention
        assert isinstance(attention, LatentAttention)
        if attention.indexer is None:
            return layer
        indexer = replace(attention.indexer, **changes)  # type: ignore[arg-type]
        return replace(layer, attention=replace(attention, indexer=indexer))

    return replace(spec, layers=tuple(changed(layer) for layer in spec.layers))


def _index_rope_first(spec: ModelSpec) -> ModelSpec:
    return _change_indexer(spec, rope_at="first")


def _index_half_split(spec: ModelSpec) -> ModelSpec:
    attention = spec.layers[0].attention
    return _change_indexer(spec, rope=replace(attention.rope, style="half_split"))


def _plain_positions(spec: ModelSpec) -> ModelSpec:
    rope = replace(spec.layers[0].attention.rope, sections=None)
    return _change_indexer(_change_attention(spec, rope=rope), rope=rope)


def _smaller_topk(spec: ModelSpec) -> ModelSpec:
    return _change_indexer(spec, topk=TOPK - 1)


MISTAKES = [
    _half_split, _latent_eps, _no_clamp, _index_rope_first, _index_half_split, _plain_positions, _smaller_topk
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__.strip("_"))
def test_a_mistake_in_the_model_fails_the_comparison(
    oracle_case: GetCase, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[ModelSpec], ModelSpec]
) -> None:
    case = oracle_case("hy_v4_vl")
    parse = hy_v4.FAMILY.parse
    changed = replace(hy_v4.FAMILY, parse=lambda config: mistake(parse(config)))
    monkeypatch.setattr("engine.runtime.find_family", lambda config: changed)
    runtime = open_runtime(case.path, EngineSettings(device="cpu", cache_tokens=1024))
    actual = scored(runtime, case, 257)
    with pytest.raises(AssertionError, match="logits: relative RMS"):
        compare.assert_matches(case.tensors, {"logits": actual["logits"]})


def test_wrong_frequency_sharing_fails_the_comparison(
    oracle_case: GetCase, runtime_of: GetRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("hy_v4_vl")
    monkeypatch.setattr(rope_module, "_axes", lambda rope: [i * 3 // (rope.width // 2) for i in range(rope.width // 2)])
    actual = scored(runtime_of(case), case, 257)
    with pytest.raises(AssertionError, match="logits: relative RMS"):
        compare.assert_matches(case.tensors, {"logits": actual["logits"]})
