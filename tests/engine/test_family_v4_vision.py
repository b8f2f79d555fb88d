"""DeepSeek-V4-Flash-Vision-Exp against an independent writing of its formulas, and inside the language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import Tensor

from engine.errors import BadImage
from engine.families import deepseek_v4
from engine.model import vision_rope
from engine.model.spec import CompressedAttention, ModelSpec, RopeVision
from engine.vision.picture import open_picture
from engine.vision.span_layout import padding_before, span_of, span_tokens
from engine.vision.span_reader import SpanReader
from tests.engine.family_runner import Running, load_running, replaced
from tests.engine.family_runner_checks import (
    TIGHT,
    check_batch,
    check_complete,
    check_cut,
    check_decisions,
    check_greedy,
    check_rewind,
    check_visible,
)
from tests.support import compare, vit_v4
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]


@pytest.fixture(scope="module")
def case(oracle_case: GetCase) -> OracleCase:
    return oracle_case("deepseek_v4_vision")


@pytest.fixture(scope="module")
def running(case: OracleCase) -> Running:
    return _with_pictures(load_running(case.path), case)


def _reader(running: Running) -> SpanReader:
    assert running.family.image_reader is not None
    reader = running.family.image_reader(running.spec, running.checkpoint.config, {})
    assert isinstance(reader, SpanReader)
    return reader


def _with_pictures(running: Running, case: OracleCase) -> Running:
    """Place the encoded pictures where the case has them; its ids already hold the spans."""
    reader, rows, values = _reader(running), [], []
    assert running.model.vision is not None
    for path, info in zip(case.image_paths, case.info["images"], strict=True):
        picture = reader.prepare(open_picture(path))
        start = info["first_token"]
        ids = reader.padding_ids(start) + reader.token_ids(picture.grid)
        assert ids == [running.spec.vocab + kind for kind in info["kinds"]]
        assert case.input_ids[start : start + len(ids)].tolist() == ids
        features = running.model.vision(picture.pixels, picture.grid)
        rows.append(torch.arange(len(features)) + start + len(reader.padding_ids(start)))
        values.append(features)
    running.images = torch.cat(rows), torch.cat(values)
    return running


def _spans(case: OracleCase) -> list[tuple[int, int]]:
    """First and last place of each picture, padding before it left out."""
    start, end = ((case.input_ids == case.config["vocab_size"] + kind).nonzero()[:, 0] for kind in (0, 4))
    return list(zip(start.tolist(), end.tolist(), strict=True))


def test_every_tensor_is_accounted_for(running: Running, case: OracleCase) -> None:
    check_complete(running, case)
    assert {"image_pad", "layers.0.ffn.gate.bias_vl"} <= {stored.codes.name for stored in running.report.found.values()}


def test_pixels_and_features(running: Running, case: OracleCase) -> None:
    reader, tensors = _reader(running), case.tensors
    encoder = running.model.vision
    assert isinstance(encoder, vision_rope.RopeVisionEncoder)
    pictures = [reader.prepare(open_picture(path)) for path in case.image_paths]
    assert [[1, *picture.grid] for picture in pictures] == tensors["image_grid_thw"].tolist()
    compare.assert_close(torch.cat([p.pixels for p in pictures]), tensors["pixel_values"], name="pixel_values")
    features = torch.cat([encoder.features(p.pixels, p.grid) for p in pictures])
    compare.assert_close(features, tensors["image_features"], name="image_features", tolerance=TIGHT)


def test_every_decision_is_the_references(running: Running, case: OracleCase) -> None:
    check_decisions(running, case, [1, 3])


def test_greedy_answers_are_the_references(running: Running, case: OracleCase) -> None:
    check_greedy(running, case)


def test_cuts_around_pictures_change_nothing(running: Running, case: OracleCase) -> None:
    cuts, place = [], 0
    for first, last in _spans(case):
        cuts += [first - place, last + 1 - first]  # up to START, the picture alone
        place = last + 1
    check_cut(running, case, [*cuts, 1])


def test_batches_and_cutting_back(running: Running, case: OracleCase) -> None:
    (_, first_end), _, (third_start, third_end) = _spans(case)
    check_batch(
        running, case, [[first_end + 1, third_start], [third_end + 1, 257], [third_start, 200], [3, third_start]]
    )
    check_rewind(running, case, third_end + 2, third_end + 90)


def test_a_picture_cut_in_two_is_our_own_mistake(running: Running, case: OracleCase) -> None:
    first, last = _spans(case)[0]
    sequence = running.start()
    with pytest.raises(AssertionError, match="cuts a picture"):
        running.step([running.chunk(sequence, case.input_ids, 0, (first + last) // 2)])
    running.close(sequence)


# ---------------------------------------------------------------- layout and preprocessing


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("grid", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 4), (4, 3), (5, 5), (2, 47)])
def test_the_layout_is_the_independent_one(grid: tuple[int, int], start: int) -> None:
    kinds, order = vit_v4.image_block(vit_v4.Grid(*grid), start)
    span = span_of(*grid)
    assert [vit_v4.PAD] * padding_before(start) + span.kinds == kinds.tolist()
    assert [f for f in span.features if f >= 0] == order.tolist()
    assert len(span.kinds) == span_tokens(*grid) == vit_v4.span_tokens(vit_v4.Grid(*grid))
    assert (start + padding_before(start) + 1) % 4 == 0  # the grid begins with a group


SIZES = [(20, 20), (384, 384), (1000, 700), (64, 4000), (4000, 64), (9000, 30), (30, 9000), (2160, 3840), (41, 43)]


@pytest.mark.parametrize("size", SIZES)
def test_preprocessing_is_the_independent_one(size: tuple[int, int]) -> None:
    config = vit_v4.VisionConfig()
    vision = RopeVision(1024, 2816, 1, 16, 14, 3, 10000.0, 1e-6, 1)
    reader = SpanReader(vision, 100, config.max_n_token, config.min_pixels, config.max_wh_ratio)
    noise = torch.randint(0, 256, (max(size[0] // 8, 1), max(size[1] // 8, 1), 3), dtype=torch.uint8)
    picture = Image.fromarray(noise.numpy()).resize((size[1], size[0]))
    expected, grid = vit_v4.preprocess(picture, config)
    prepared = reader.prepare(picture)
    assert prepared.grid == tuple(grid)
    compare.assert_close(prepared.pixels, expected, name="pixels", tolerance=compare.PIXEL_TOLERANCE)
    assert len(reader.token_ids(prepared.grid)) + 3 <= config.max_n_token
    positions, behind = reader.positions(prepared.grid, 7)
    assert positions[:, 0].tolist() == [7, 7, 7] and behind == 7 + len(reader.token_ids(prepared.grid))


def test_a_picture_that_no_budget_holds_is_refused() -> None:
    reader = SpanReader(RopeVision(64, 64, 1, 4, 14, 3, 10000.0, 1e-6, 1), 100, 8, 84 * 84, 8)
    with pytest.raises(BadImage, match="token budget"):
        reader.prepare(Image.new("RGB", (600, 400)))


# ---------------------------------------------------------------- mistakes must show


def _closed_span(spec: ModelSpec) -> ModelSpec:
    attentions = [layer.attention for layer in spec.layers]
    assert all(isinstance(a, CompressedAttention) and a.open_span for a in attentions)
    return replace(
        spec, layers=tuple(replace(la, attention=replace(la.attention, open_span=None)) for la in spec.layers)
    )


def test_a_span_that_does_not_see_itself_shows(case: OracleCase) -> None:
    check_visible(_with_pictures(load_running(case.path, change=_closed_span), case), case)


def test_a_forgotten_image_bias_shows(running: Running, case: OracleCase) -> None:
    routers = [layer.mlp.router for layer in running.model.transformer.layers]  # type: ignore[union-attr]
    kept = [router.image_bias for router in routers]
    for router in routers:
        router.image_bias = None if router.token_experts is None else torch.zeros_like(router.image_bias)
    try:
        check_visible(running, case)
    finally:
        for router, bias in zip(routers, kept, strict=True):
            router.image_bias = bias


def test_a_lost_padding_vector_shows(running: Running, case: OracleCase) -> None:
    kept, running.model.transformer.padding = running.model.transformer.padding, None
    try:
        check_visible(running, case)
    finally:
        running.model.transformer.padding = kept


def _axes_swapped(angles: Callable[..., Tensor], grid: tuple[int, int], width: int, theta: float) -> Tensor:
    return angles(grid, width, theta).roll(width // 4, dims=1)


def _interleaved(_: Callable[..., Tensor], x: Tensor, angles: Tensor) -> Tensor:
    from kernels.rope import rotate_interleaved

    return rotate_interleaved(x, angles)


@pytest.mark.parametrize(("name", "mistake"), [("axial_angles", _axes_swapped), ("rotate_half_split", _interleaved)])
def test_a_wrong_rotation_in_the_encoder_shows(
    running: Running, case: OracleCase, name: str, mistake: Callable[..., Tensor]
) -> None:
    encoder = running.model.vision
    assert isinstance(encoder, vision_rope.RopeVisionEncoder)
    rows, columns = case.tensors["image_grid_thw"][0, 1:].tolist()
    with replaced(vision_rope, name, mistake):
        features = encoder.features(case.tensors["pixel_values"][: rows * columns], (rows, columns))
    assert compare.relative_rms(features, case.tensors["image_features"][: len(features)]) > compare.TOLERANCE


def test_the_placeholder_is_the_published_one() -> None:
    assert deepseek_v4.FAMILY.chat.image == "<｜deepseek_image｜>"
