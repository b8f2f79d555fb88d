"""Sampling on the device: the draw cuts [0, 1) into the kept chances; on a GPU nothing waits and a graph can hold it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.sampling import NUMBERS, sample_tokens
from tests.kernels.cases import random_generator


def numbers(count: int, **options: float) -> Tensor:
    """Rows of options, without filters unless given, and draws spread evenly over [0, 1)."""
    plain = {"repetition_penalty": 1.0, "temperature": 1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0, "uniform": 0.0}
    table = torch.tensor([[(plain | options)[name] for name in NUMBERS]]).repeat(count, 1)
    table[:, NUMBERS.index("uniform")] = torch.arange(count) / count
    return table


@pytest.mark.parametrize(
    ("options", "kept"),
    [({}, [0, 1, 2, 3, 4]), ({"top_k": 2}, [1, 2]), ({"top_p": 0.75}, [1, 2, 3]), ({"min_p": 0.35}, [1, 2]),
     ({"top_k": 3, "top_p": 0.55}, [1]), ({"temperature": 0.0}, [1])],
    ids=str,
)  # fmt: skip
def test_draws_are_shared_out_by_chance(options: dict[str, float], kept: list[int], device: str) -> None:
    chances = torch.tensor([0.1, 0.5, 0.2, 0.15, 0.05])
    draws = 4000
    ids = sample_tokens(chances.log().repeat(draws, 1).to(device), numbers(draws, **options).to(device), None, False)
    share = torch.bincount(ids.cpu(), minlength=5) / draws
    expected = torch.zeros(5).index_copy(0, torch.tensor(kept), chances[kept] / chances[kept].sum())
    assert torch.allclose(share, expected, atol=2 / draws)


def test_only_seen_ids_are_pushed_down(device: str) -> None:
    logits = torch.tensor([[2.0, 1.9, -1.0], [2.0, 1.9, -1.0], [-1.0, -1.1, -9.0]], device=device)
    seen = torch.tensor([[True, False, False], [True, True, False], [True, False, False]], device=device)
    table = numbers(3, repetition_penalty=1.2, temperature=0.0).to(device)
    assert sample_tokens(logits, table, seen, True).tolist() == [1, 0, 1]
    assert sample_tokens(logits, table, None, True).tolist() == [0, 0, 0]


def large(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Six rows of a published vocabulary, options of every kind."""
    random = random_generator(0)
    logits = torch.randn(6, 129280, generator=random) * 3
    rows = [{}, {"top_p": 0.95}, {"top_k": 40, "temperature": 0.6}, {"temperature": 0.0}, {"min_p": 0.05}, {}]
    table = torch.cat([numbers(1, **options) for options in rows])
    table[:, -1], table[5, 0] = torch.rand(6, generator=random), 1.3
    return logits.to(device), table.to(device), (torch.rand(6, 129280, generator=random) < 0.1).to(device)


def test_a_row_does_not_depend_on_its_neighbours(device: str) -> None:
    logits, table, seen = large(device)
    together = sample_tokens(logits, table, seen, False)
    for n in range(6):
        part = slice(n, n + 1)
        assert torch.equal(sample_tokens(logits[part], table[part], seen[part], False), together[part])
    logits[2, 7] = float("nan")
    assert (sample_tokens(logits, table, seen, False) == together.index_fill(0, together.new_tensor([2]), -1)).all()


@pytest.mark.gpu
def test_nothing_waits_and_a_graph_can_hold_it() -> None:
    arguments = large("cuda")
    expected = sample_tokens(*large("cpu"), False)
    sample_tokens(*arguments, False)
    torch.cuda.set_sync_debug_mode("error")
    try:
        ids = sample_tokens(*arguments, False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = sample_tokens(*arguments, False)
    graph.replay()
    assert torch.equal(ids.cpu(), expected)
    assert torch.equal(captured.cpu(), expected)
