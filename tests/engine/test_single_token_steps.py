"""Steps of one token per conversation, which the device works out: bit for bit those that the host works out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import torch

from engine.cache.cache import KvCache
from engine.model.batch import Batch, Chunk, Span, _several_tokens, build_batch
from kernels.choose import OPERATORS, use
from tests.engine.family_runner import Running, load_running, one_thread
from tests.engine.single_tokens import FAMILIES, another, grown, next_chunks, same_state, started
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
EDGES = (1, 3, 7, 31, 62, 126, 127, 254)  # tokens before a few steps: around windows, compressed entries and pages


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, oracle_case: GetCase) -> OracleCase:
    return oracle_case(request.param)


@pytest.fixture(scope="module")
def running(case: OracleCase) -> Running:
    return load_running(case.path)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@contextmanager
def references() -> Iterator[None]:
    """Every operator in plain torch."""
    with ExitStack() as stack:
        for name, operator in OPERATORS.items():
            if "reference" in operator.implementations:
                stack.enter_context(use(name, "reference"))
        yield


def by_the_host(chunks: Sequence[Chunk], cache: KvCache) -> Batch:
    """The same step as one of any number of tokens."""
    spans = [Span(row, 1, chunk.sequence.length, chunk.sequence.row) for row, chunk in enumerate(chunks)]
    batch = _several_tokens(chunks, spans, cache)
    batch.spans = spans
    return batch


@pytest.mark.parametrize("plain", [True, False], ids=["reference", "chosen"])
def test_a_step_worked_out_on_the_device_is_the_hosts(running: Running, case: OracleCase, plain: bool) -> None:
    running, other = another(running), another(running)
    with references() if plain else ExitStack():
        ours, theirs = started(running, EDGES), started(other, EDGES)
        for owner, sequences in ((running, ours), (other, theirs)):
            sequences.append(owner.start())  # behind pictures, where the family has them
            owner.read(case.input_ids, len(case.input_ids), sequences[-1])
        ours.reverse()  # not in the order of their rows
        theirs.reverse()
        for turn in range(6):
            chunks = next_chunks(running, ours, turn, turned=5)
            batch = build_batch(chunks, running.cache)
            hosts = by_the_host(next_chunks(other, theirs, turn, turned=5), other.cache)
            assert batch.single and not hosts.single
            logits, expected = running.model.transformer(batch), other.model.transformer(hosts)
            assert torch.equal(logits, expected), f"step {turn}: {(logits - expected).abs().amax(1)}"
            for sequences in (ours, theirs):
                grown(sequences)
        same_state(running, other, ours)
    for owner, sequences in ((running, ours), (other, theirs)):
        for sequence in sequences:
            owner.close(sequence)


def test_logits_of_some_rows_only(running: Running) -> None:
    ours = started(running, (3, 64, 5))
    chunks = next_chunks(running, ours, 0)
    every = running.model.transformer(build_batch(chunks, running.cache))
    chunks[1] = replace(chunks[1], want_logits="none")
    some = running.model.transformer(build_batch(chunks, running.cache))
    torch.testing.assert_close(some, every[[0, 2]])
    for sequence in ours:
        running.close(sequence)
