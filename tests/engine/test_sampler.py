"""From logits to ids: each filter keeps exactly what its definition says, and a seed means the same everywhere.

Both ways are tested: row by row, and all rows together, as a GPU samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadRequest, EngineError
from engine.generation.sampler import Sampler, Sampling, next_tokens, sample_together
from tests.engine.helpers import is_one_sentence

CPU = torch.device("cpu")
LOGITS = torch.tensor([0.1, 0.5, 0.2, 0.15, 0.05]).log()


Way = Callable[[torch.Tensor, Sequence[tuple[Sampler, Sequence[int]]]], list[int | Exception]]
WAYS = pytest.mark.parametrize("way", [next_tokens, sample_together])


def one(way: Way, sampler: Sampler, logits: torch.Tensor, tokens: Sequence[int] = ()) -> int:
    (token,) = way(logits[None], [(sampler, tokens)])
    if isinstance(token, Exception):
        raise token
    return token


def drawn(
    way: Way, sampling: Sampling, logits: torch.Tensor = LOGITS, tokens: Sequence[int] = (), count: int = 400
) -> list[int]:
    sampler = Sampler(replace(sampling, seed=0), CPU)
    return [one(way, sampler, logits, tokens) for _ in range(count)]


@WAYS
def test_zero_is_greedy_and_the_lowest_index_wins_ties(way: Way) -> None:
    assert set(drawn(way, Sampling(temperature=0.0))) == {1}
    assert set(drawn(way, Sampling(temperature=0.0), torch.tensor([1.0, 3.0, 3.0, 2.0]))) == {1}


@WAYS
@pytest.mark.parametrize(
    ("options", "possible"),
    [({"top_k": 1}, {1}), ({"top_k": 2}, {1, 2}), ({"top_k": 99}, {0, 1, 2, 3, 4}), ({"top_p": 0.0}, {1}),
     ({"top_p": 0.49}, {1}), ({"top_p": 0.51}, {1, 2}), ({"top_p": 0.84}, {1, 2, 3}), ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
     ({"min_p": 1.0}, {1}), ({"min_p": 0.35}, {1, 2}), ({"min_p": 0.25}, {1, 2, 3}), ({"top_k": 3, "top_p": 0.5}, {1}),
     ({"top_k": 2, "top_p": 0.72}, {1, 2})],
    ids=str,
)  # fmt: skip
def test_filters_keep_what_they_say(options: dict[str, float], possible: set[int], way: Way) -> None:
    assert set(drawn(way, Sampling(**options))) == possible  # type: ignore[arg-type]


@WAYS
def test_frequencies_follow_the_temperature(way: Way) -> None:
    for temperature in (0.5, 1.0, 2.0):
        rows = [(Sampler(Sampling(temperature=temperature, seed=n), CPU), ()) for n in range(100)]
        ids = torch.tensor([way(LOGITS.expand(100, -1), rows) for _ in range(60)]).flatten()
        expected = (LOGITS / temperature).softmax(-1)
        assert float((torch.bincount(ids, minlength=5) / 6000 - expected).abs().max()) < 4 * math.sqrt(0.25 / 6000)


@WAYS
def test_the_repetition_penalty_pushes_seen_ids_down_whatever_their_sign(way: Way) -> None:
    logits = torch.tensor([2.0, 1.9, -1.0, -1.1])
    greedy = Sampling(temperature=0.0, repetition_penalty=1.2)
    assert drawn(way, greedy, logits, [0], 1) == [1]
    assert drawn(way, greedy, logits, [0, 1, 0, 99], 1) == [0], "99 is a picture's"
    assert drawn(way, greedy, logits[2:], [0], 1) == [1]
    assert drawn(way, greedy, logits, [], 1) == [0]
    assert logits.tolist() == torch.tensor([2.0, 1.9, -1.0, -1.1]).tolist(), "the logits were changed in place"


@WAYS
def test_the_repetition_penalty_follows_a_growing_answer(way: Way) -> None:
    """Each id is pushed down once it has been written: the answer walks through all of them."""
    logits = torch.tensor([2.0, 1.9, 1.8, 1.7])
    sampler, tokens = Sampler(Sampling(temperature=0.0, repetition_penalty=1.5), CPU), [3]
    for _ in range(4):
        tokens.append(one(way, sampler, logits, tokens))
    assert tokens == [3, 0, 1, 2, 0]


@WAYS
def test_a_seed_repeats_and_other_seeds_differ(way: Way) -> None:
    flat = torch.zeros(1000)

    def run(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(seed=seed), CPU)
        return [one(way, sampler, flat) for _ in range(10)]

    assert run(3) == run(3) != run(4)
    assert run(None) != run(None)
    assert run(-(2**63)) == run(-(2**63)) and run(2**63 - 1) == run(2**63 - 1)


def test_seeds_mean_on_the_cpu_what_they_always_have() -> None:
    sampler = Sampler(Sampling(seed=3, top_p=0.9), CPU)
    logits = torch.linspace(0, 3, 1000)
    assert [one(next_tokens, sampler, logits) for _ in range(6)] == [967, 895, 968, 691, 938, 857]


@WAYS
def test_another_requests_sampling_does_not_disturb_a_seed(way: Way) -> None:
    """Greedy, penalised and filtered neighbours, and none: always the same ids."""
    logits = torch.randn(5, 3000, generator=torch.Generator().manual_seed(0))
    mine = Sampling(seed=3, temperature=0.8, top_p=0.95)
    alone = Sampler(mine, CPU)
    expected = [one(way, alone, logits[2]) for _ in range(5)]
    others = [Sampling(temperature=0.0), Sampling(seed=9, top_k=5), mine, Sampling(2.0, 0.5, 0, 0.7, 0.1, 3)]
    samplers = [Sampler(sampling, CPU) for sampling in others]
    together = [way(logits[:4], [(sampler, [1, 2]) for sampler in samplers])[2] for _ in range(5)]
    assert together == expected


@WAYS
def test_a_broken_row_does_not_disturb_the_others(way: Way) -> None:
    logits = torch.stack([LOGITS, LOGITS * math.nan, LOGITS, LOGITS])
    logits[3, 1] = math.inf
    samplers = [Sampler(Sampling(temperature=t, seed=0), CPU) for t in (0.0, 1.0, 1.0, 0.0)]
    first, second, third, fourth = way(logits, [(sampler, []) for sampler in samplers])
    assert first == 1 and third in range(5)
    assert isinstance(second, EngineError) and isinstance(fourth, EngineError)


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=30),
    temperature=st.floats(0, 100), top_k=st.integers(0, 40), top_p=st.floats(0, 1), min_p=st.floats(0, 1),
    penalty=st.floats(0.01, 100), data=st.data(),
)  # fmt: skip
def test_any_options_give_an_id(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, penalty: float, data: st.DataObject
) -> None:
    seen = data.draw(st.lists(st.integers(0, len(logits) - 1)))
    sampling = Sampling(penalty, temperature, top_k, top_p, min_p, 0)
    sampling.check()
    for way in (next_tokens, sample_together):
        assert 0 <= one(way, Sampler(sampling, CPU), torch.tensor(logits), seen) < len(logits)


@WAYS
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_values_that_are_not_numbers_are_told(value: float, temperature: float, way: Way) -> None:
    logits = LOGITS.clone()
    logits[3] = value
    with pytest.raises(EngineError, match="not numbers"):
        drawn(way, Sampling(temperature=temperature), logits, count=1)


@WAYS
def test_minus_infinity_only_forbids_an_id(way: Way) -> None:
    logits = torch.tensor([-math.inf, 0.0, -math.inf])
    assert set(drawn(way, Sampling(temperature=1.0), logits)) == {1}


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
