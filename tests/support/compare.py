"""Comparisons of computed with expected tensors whose failures say where and by how much."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-4  # relative RMS of a float tensor against fp32
ROW_FACTOR = 3.0  # a single row may be this much worse than the whole
PIXEL_TOLERANCE = 1e-2  # resizing libraries round single gray levels differently
TIE_MARGIN = 2e-5  # rows closer than this to a tie are not judged

_EXACT = re.compile(r"^(input_ids|position_ids|position_delta|image_grid_thw|probe_rows|greedy\.\d+\.ids)$")
_SETS = re.compile(r"^(topk\.\d+|router\.\d+\.ids)$")


class WorstRow(NamedTuple):
    """The row (all dims but the last, flattened) with the largest relative RMS."""

    row: int
    relative_rms: float


def relative_rms(actual: Tensor, expected: Tensor) -> float:
    """RMS of the difference over RMS of ``expected``, in float64."""
    expected = expected.double()
    difference = (actual.double() - expected).square().mean().sqrt()
    return float(difference / expected.square().mean().sqrt().clamp(min=1e-300))


def cosine(actual: Tensor, expected: Tensor) -> float:
    """Cosine of the angle between the flattened tensors, in float64."""
    a, b = actual.double().flatten(), expected.double().flatten()
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-300))


def worst_row(actual: Tensor, expected: Tensor) -> WorstRow:
    """The worst row; a row is judged against its own RMS."""
    expected = expected.double().reshape(-1, expected.shape[-1])
    difference = actual.double().reshape(expected.shape) - expected
    error = difference.square().mean(-1).sqrt() / expected.square().mean(-1).sqrt().clamp(min=1e-300)
    index = int(error.argmax())
    return WorstRow(index, float(error[index]))


def assert_close(
    actual: Tensor,
    expected: Tensor,
    *,
    name: str = "tensor",
    tolerance: float = TOLERANCE,
    row_factor: float | None = None,
) -> None:
    """Same shape, all finite, relative RMS within ``tolerance``; each row within ``row_factor * tolerance``."""
    assert actual.shape == expected.shape, f"{name}: shape {list(actual.shape)}, expected {list(expected.shape)}"
    bad = int((~torch.isfinite(actual)).sum())
    assert bad == 0, f"{name}: {bad} of {actual.numel()} values are not finite"
    error = relative_rms(actual, expected)
    row, row_error = worst_row(actual, expected) if expected.dim() > 1 else (0, error)
    largest = float((actual.double() - expected.double()).abs().max())
    text = f"{name}: relative RMS {error:.2e} (limit {tolerance:.0e}), cosine {cosine(actual, expected):.9f}, "
    text += f"max abs {largest:.2e}, worst row {row}: {row_error:.2e}"
    assert error <= tolerance, text
    assert row_factor is None or row_error <= row_factor * tolerance, text


def assert_equal(actual: Tensor, expected: Tensor, *, name: str = "tensor") -> None:
    """Same shape and values (dtype may differ)."""
    assert actual.shape == expected.shape, f"{name}: shape {list(actual.shape)}, expected {list(expected.shape)}"
    wrong = (actual.to(expected.dtype) != expected).nonzero()
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise AssertionError(
            f"{name}: {len(wrong)} of {expected.numel()} values differ, first at {at}: "
            f"{actual[at].item()}, expected {expected[at].item()}"
        )


def assert_same_sets(
    actual: Tensor,
    expected: Tensor,
    *,
    name: str = "selection",
    margin: Tensor | None = None,
    tie_margin: float = TIE_MARGIN,
) -> None:
    """Rows ``[T, K]`` and ``[T, K']`` hold the same ids; order and negative padding do not matter.

    ``margin [T]`` is the distance of each row from a tie; rows below ``tie_margin`` are not judged.
    """
    assert actual.shape[0] == expected.shape[0], f"{name}: {actual.shape[0]} rows, expected {expected.shape[0]}"
    wrong, judged, overlap, first = 0, 0, 0.0, ""
    for row, (a, e) in enumerate(zip(actual.tolist(), expected.tolist(), strict=True)):
        if margin is not None and float(margin[row]) < tie_margin:
            continue
        got, want = {i for i in a if i >= 0}, {i for i in e if i >= 0}
        judged += 1
        overlap += len(got & want) / len(got | want) if got | want else 1.0
        if got != want:
            wrong += 1
            near = "" if margin is None else f", {float(margin[row]):.1e} std from a tie"
            missing, surplus = sorted(want - got), sorted(got - want)
            first = first or f"row {row}: missing {missing}, surplus {surplus}{near}"
        repeated = len([i for i in a if i >= 0]) - len(got)
        assert repeated == 0, f"{name}: row {row} repeats {repeated} ids"
    assert judged, f"{name}: every row is a near tie, nothing was judged"
    text = f"{name}: {wrong} of {judged} rows differ, mean overlap {overlap / judged:.4f}, first {first}"
    assert wrong == 0, text


def assert_matches(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], tolerance: float = TOLERANCE) -> None:
    """Judge every tensor of ``actual`` by its name in ``OracleCase.tensors``; reports all failures at once."""
    assert actual, "nothing to compare"
    failures = []
    for name, tensor in actual.items():
        try:
            if name not in expected:
                raise AssertionError(f"{name}: not a name of the expected tensors")
            if _EXACT.match(name):
                assert_equal(tensor, expected[name], name=name)
            elif _SETS.match(name):
                margin = expected.get(name.replace("topk.", "topk_margin.")) if name.startswith("topk.") else None
                assert_same_sets(tensor, expected[name], name=name, margin=margin)
            elif name == "pixel_values":
                assert_close(tensor, expected[name], name=name, tolerance=PIXEL_TOLERANCE)
            else:
                rows = ROW_FACTOR if name.endswith("logits") else None
                assert_close(tensor, expected[name], name=name, tolerance=tolerance, row_factor=rows)
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, f"{len(failures)} of {len(actual)} tensors differ\n" + "\n".join(failures)
