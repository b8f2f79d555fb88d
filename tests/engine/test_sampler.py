"""From logits to ids: each filter keeps exactly what its definition says, and a seed means the same everywhere."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadRequest, EngineError
from engine.generation.sampler import Sampler, Sampling
from tests.engine.helpers import is_one_sentence

CPU = torch.device("cpu")
LOGITS = torch.tensor([0.1, 0.5, 0.2, 0.15, 0.05]).log()


def drawn(
    sampling: Sampling, logits: torch.Tensor = LOGITS, seen: torch.Tensor | None = None, count: int = 400
) -> list[int]:
    sampler = Sampler(Sampling(**{**sampling.__dict__, "seed": 0}), CPU)
    return [sampler(logits, seen) for _ in range(count)]


def test_zero_is_greedy_and_the_lowest_index_wins_ties() -> None:
    assert set(drawn(Sampling(temperature=0.0))) == {1}
    assert set(drawn(Sampling(temperature=0.0), torch.tensor([1.0, 3.0, 3.0, 2.0]))) == {1}


@pytest.mark.parametrize(
    ("options", "possible"),
    [({"top_k": 1}, {1}), ({"top_k": 2}, {1, 2}), ({"top_k": 99}, {0, 1, 2, 3, 4}), ({"top_p": 0.0}, {1}),
     ({"top_p": 0.49}, {1}), ({"top_p": 0.51}, {1, 2}), ({"top_p": 0.84}, {1, 2, 3}), ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
     ({"min_p": 1.0}, {1}), ({"min_p": 0.35}, {1, 2}), ({"min_p": 0.25}, {1, 2, 3}), ({"top_k": 3, "top_p": 0.5}, {1}),
     ({"top_k": 2, "top_p": 0.72}, {1, 2})],
    ids=str,
)  # fmt: skip
def test_filters_keep_what_they_say(options: dict[str, float], possible: set[int]) -> None:
    assert set(drawn(Sampling(**options))) == possible  # type: ignore[arg-type]


def test_frequencies_follow_the_temperature() -> None:
    for temperature in (0.5, 1.0, 2.0):
        expected = (LOGITS / temperature).softmax(-1)
        counts = torch.bincount(torch.tensor(drawn(Sampling(temperature=temperature), count=6000)), minlength=5) / 6000
        assert float((counts - expected).abs().max()) < 4 * math.sqrt(0.25 / 6000)


def test_the_repetition_penalty_pushes_seen_ids_down_whatever_their_sign() -> None:
    logits = torch.tensor([2.0, 1.9, -1.0, -1.1])
    greedy = Sampling(temperature=0.0, repetition_penalty=1.2)
    assert drawn(greedy, logits, torch.tensor([0]), 1) == [1]
    assert drawn(greedy, logits, torch.tensor([0, 1]), 1) == [0]
    assert drawn(greedy, logits[2:], torch.tensor([0]), 1) == [1]
    assert drawn(greedy, logits, None, 1) == [0]
    assert logits.tolist() == torch.tensor([2.0, 1.9, -1.0, -1.1]).tolist(), "the logits were changed in place"


def test_a_seed_repeats_and_other_seeds_differ() -> None:
    flat = torch.zeros(1000)

    def run(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(seed=seed), CPU)
        return [sampler(flat, None) for _ in range(10)]

    assert run(3) == run(3) != run(4)
    assert run(None) != run(None)
    assert run(-(2**63)) == run(-(2**63)) and run(2**63 - 1) == run(2**63 - 1)


def test_another_requests_sampling_does_not_disturb_a_seed() -> None:
    flat = torch.zeros(1000)
    alone = Sampler(Sampling(seed=3), CPU)
    expected = [alone(flat, None) for _ in range(5)]
    one, other = Sampler(Sampling(seed=3), CPU), Sampler(Sampling(seed=9), CPU)
    assert [(one(flat, None), other(flat, None))[0] for _ in range(5)] == expected


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=30),
    temperature=st.floats(0, 100), top_k=st.integers(0, 40), top_p=st.floats(0, 1), min_p=st.floats(0, 1),
    penalty=st.floats(0.01, 100), data=st.data(),
)  # fmt: skip
def test_any_options_give_an_id(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, data: st.DataObject
) -> None:
    seen = data.draw(st.lists(st.integers(0, len(logits) - 1), unique=True))
    sampling = Sampling(penalty, temperature, top_k, top_p, min_p, 0)
    sampling.check()
    chosen = Sampler(sampling, CPU)(torch.tensor(logits), torch.tensor(seen, dtype=torch.int64))
    assert 0 <= chosen < len(logits)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_values_that_are_not_numbers_are_told(value: float, temperature: float) -> None:
    logits = LOGITS.clone()
    logits[3] = value
    with pytest.raises(EngineError, match="not numbers"):
        drawn(Sampling(temperature=temperature), logits, None, 1)


def test_minus_infinity_only_forbids_an_id() -> None:
    logits = torch.tensor([-math.inf, 0.0, -math.inf])
    assert set(drawn(Sampling(temperature=1.0), logits)) == {1}


@pytest.mark.parametrize(
    "options",
    [{"temperature": -0.1}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_p": 1.1}, {"top_p": -0.1},
     {"min_p": 2.0}, {"top_k": -1}, {"repetition_penalty": 0.0}, {"seed": 2**64}, {"seed": -(2**64)}],
    ids=str,
)  # fmt: skip
def test_options_out_of_range_name_themselves(options: dict[str, float]) -> None:
    with pytest.raises(BadRequest, match=next(iter(options))) as caught:
        Sampling(**options).check()  # type: ignore[arg-type]
    assert is_one_sentence(caught.value)
