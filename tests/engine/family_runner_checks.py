"""Comparisons that hold for every family, whatever its attention: cutting, batching, forgetting, greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.engine.family_runner import Running, one_thread, traced_tensors
from tests.support import compare
from tests.support.oracle import OracleCase

TIGHT = 1e-5  # what the reference path is expected to reach; compare.TOLERANCE is what it must
Steps = list[list[int]]


def check_complete(running: Running, case: OracleCase) -> None:
    """No tensor missing, none surplus, next-token-prediction layers ignored and nothing else."""
    report = running.report
    assert not report.missing and not report.surplus and not report.wrong
    assert report.ignored and all(case.is_mtp(name) for name in report.ignored)


def check_decisions(running: Running, case: OracleCase, layers_with_topk: Sequence[int]) -> None:
    """Logits, hidden states, every selection and every router choice of the whole prompt."""
    with one_thread(), running.traced() as trace:
        logits = running.read(case.input_ids, len(case.input_ids))
    actual = {**traced_tensors(trace, case.tensors["probe_rows"]), "logits": logits}
    assert case.layers("topk") == list(layers_with_topk)
    expected = {f"{kind}.{layer}" for kind in ("topk", "layer_out") for layer in case.layers(kind)}
    expected |= {f"router.{layer}.{part}" for layer in case.layers("router") for part in ("ids", "weights")}
    assert expected <= set(actual)
    compare.assert_matches(case.tensors, actual, TIGHT)


def check_greedy(running: Running, case: OracleCase) -> None:
    """The argmax continuation of every prefix, decoded token by token."""
    actual = {}
    with one_thread():
        for length in case.prefix_lengths:
            sequence = running.start()
            last = running.read(case.input_ids[:length], length, sequence)[-1]
            ids, logits = running.continue_greedily(sequence, last, 16)
            actual |= {f"greedy.{length}.ids": ids, f"greedy.{length}.logits": logits}
            running.close(sequence)
    compare.assert_matches(case.tensors, actual, TIGHT)


def check_cut(running: Running, case: OracleCase, sizes: int | Sequence[int], tokens: int | None = None) -> None:
    """Reading in chunks gives the logits of reading at once."""
    with one_thread():
        logits = running.read(case.input_ids[:tokens], sizes)
    expected = case.tensors["logits"][:tokens]
    compare.assert_close(logits, expected, name=f"chunks of {sizes}", tolerance=TIGHT, row_factor=compare.ROW_FACTOR)


def check_batch(running: Running, case: OracleCase, stops: Steps) -> None:
    """Several conversations in each step, of unequal lengths; `stops[c]` are the places conversation c reads up to."""
    sequences = [running.start() for _ in stops]
    with one_thread():
        for turn in range(max(map(len, stops))):
            taking = [c for c, own in enumerate(stops) if turn < len(own)]
            starts = [sequences[c].length for c in taking]
            chunks = [running.chunk(sequences[c], case.input_ids, sequences[c].length, stops[c][turn]) for c in taking]
            logits = running.step(chunks)
            row = 0
            for c, start in zip(taking, starts, strict=True):
                expected = case.tensors["logits"][start : stops[c][turn]]
                name = f"conversation {c}, tokens {start}..{stops[c][turn]}"
                part = logits[row : row + len(expected)]
                compare.assert_close(part, expected, name=name, tolerance=TIGHT, row_factor=compare.ROW_FACTOR)
                row += len(expected)
            assert row == len(logits)
    for sequence in sequences:
        running.close(sequence)


def check_rewind(running: Running, case: OracleCase, at: int, beyond: int) -> None:
    """Snapshot at `at`, read other tokens, cut back, read on: bit for bit the logits of never having strayed."""
    ids, other = case.input_ids, case.input_ids.flip(0)
    with one_thread():
        straight, strayed = running.start(), running.start()
        for sequence in (straight, strayed):
            running.read(ids[:at], at, sequence)
        saved = running.cache.snapshot(strayed)
        away = torch.cat([ids[:at], other[: beyond - at]])
        running.read(away, 32, strayed)
        running.cache.truncate(strayed, at, saved)
        first, second = running.read(ids, 50, straight), running.read(ids, 50, strayed)
    assert torch.equal(first, second), f"cut back to {at}: max abs {(first - second).abs().max():.1e}"
    expected = case.tensors["logits"][at:]
    compare.assert_close(second, expected, name=f"after cutting back to {at}", tolerance=TIGHT)
    running.close(straight)
    running.close(strayed)


def check_visible(running: Running, case: OracleCase) -> None:
    """For wrong-on-purpose models: the same comparison must notice."""
    with one_thread():
        logits = running.read(case.input_ids, len(case.input_ids))
    try:
        compare.assert_matches(case.tensors, {"logits": logits})
    except AssertionError as difference:
        assert "logits: relative RMS" in str(difference), difference
        return
    raise AssertionError("the mistake does not show")
