"""Decode steps of random models: in wall time, per layer, per kernel, as a conversation grows, and as a CUDA graph."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

from engine.cache.cache import CachedSequence
from engine.generation.sampler import Sampler
from engine.model.batch import Batch, Chunk, build_batch
from engine.model.step_graphs import CudaRecorder, Record, StepGraphs
from tests.bench.layer_clock import LayerClock, profile_device, profile_host, wait
from tests.bench.product import GREEDY, Emit, Product, Work, part, random_prompt
from tests.bench.random_model import RandomModel, kind_name

SHORT = 480  # tokens, fewer than any indexer keeps: there every new page makes lists longer


class Decoding:
    """Decode steps of some conversations, as the scheduler makes them: build the batch, run it, sample each row."""

    def __init__(self, model: RandomModel, sequences: list[CachedSequence]) -> None:
        self.model, self.sequences, self._first = model, sequences, sequences[0].length
        self._samplers = [Sampler(GREEDY, model.device) for _ in sequences]
        self._tokens = list(range(1, len(sequences) + 1))

    def chunks(self) -> list[Chunk]:
        return [
            Chunk(sequence, torch.tensor([token]), torch.full((3, 1), sequence.length))
            for sequence, token in zip(self.sequences, self._tokens, strict=True)
        ]

    def batch(self) -> Batch:
        return build_batch(self.chunks(), self.model.cache)

    def step(self) -> tuple[float, float, float]:
        """Seconds to build the batch, to issue the forward pass, and for the whole step."""
        start = time.perf_counter()
        batch = self.batch()
        built = time.perf_counter()
        logits = self.model.transformer(batch)
        issued = time.perf_counter()
        self._tokens = [sampler(row, None) for sampler, row in zip(self._samplers, logits, strict=True)]
        end = time.perf_counter()
        self.advance()
        return built - start, issued - built, end - start

    def advance(self) -> None:
        for sequence in self.sequences:
            sequence.length += 1

    def rewind(self) -> Decoding:
        """Back to the first step. Frontiers are then newer than the tokens, which changes no time."""
        for sequence in self.sequences:
            sequence.length = self._first
        return self

    def close(self) -> None:
        for sequence in self.rewind().sequences:
            self.model.cache.close(sequence)


def conversations(
    model: RandomModel, count: int, tokens: int, room: int, rows: dict[str, Tensor] | None = None
) -> Decoding:
    """`count` conversations of as many tokens, which hold the same rows (see `talk`) or zeros, with room for more."""
    sequences = []
    for _ in range(count):
        sequence = model.cache.open()
        assert sequence is not None and model.cache.reserve(sequence, tokens + room)
        if rows is not None:
            model.cache.import_rows(sequence, tokens, [(0, rows)])
        sequence.length = tokens
        sequences.append(sequence)
    return Decoding(model, sequences)


def ends_ms(decoding: Decoding, hold_s: float) -> float:
    """The device's time for embedding and head: a forward pass without layers."""
    transformer = decoding.model.transformer
    clock, layers = LayerClock(transformer, decoding.model.device, hold_s), transformer.layers
    transformer.layers, batch = [], decoding.batch()
    try:
        transformer(batch)
        begin = clock.mark(hold=True)
        transformer(batch)
        end = clock.mark()
    finally:
        transformer.layers = layers
    wait(decoding.model.device)
    return clock.between_ms(begin, end)


def decode(model: RandomModel, decoding: Decoding, work: Work, emit: Emit) -> None:
    """A step in wall time; then the same per layer; then per layer without waiting for the host."""
    for _ in range(work.few):
        decoding.step()
    decoding.rewind()
    times = [decoding.step() for _ in range(work.steps)]
    build, issue, whole = (1e3 * statistics.mean(column) for column in zip(*times, strict=True))
    decoding.rewind()
    with LayerClock(model.transformer, model.device) as clock:
        for _ in range(work.steps):
            decoding.step()
    kinds, host = (model.by_kind(ms, work.steps) for ms in (clock.device_ms(), clock.host_ms()))
    decoding.rewind()
    hold_s = 1.5 * clock.longest_call_s() + 5e-4
    held = LayerClock(model.transformer, model.device, hold_s)
    for _ in range(work.few):
        batch = decoding.batch()
        model.transformer(batch)  # works out what layers of one kind share
        with held:
            logits = model.transformer(batch)
        decoding.advance()
    assert bool(logits.isfinite().all()), "random weights gave numbers that are not finite"
    alone = model.by_kind(held.device_ms(), work.few)
    count, rest = len(decoding.sequences), ends_ms(decoding.rewind(), hold_s)
    scaled = whole + model.added(kinds)
    alone_ms = rest + sum(alone[kind_name(layer)] for layer in model.spec.layers)
    alone_scaled = alone_ms + model.added(alone)
    emit(
        what="decode", batch=count, context=work.context, step_ms=whole,
        median_ms=1e3 * statistics.median(t[2] for t in times), build_ms=build, issue_ms=issue,
        layers_ms=sum(clock.device_ms().values()) / work.steps, scaled_ms=scaled, scaled_tokens_per_s=1e3 * count / scaled,
        device_alone_ms=alone_ms, device_alone_scaled_ms=alone_scaled, ends_ms=rest,
        device_alone_scaled_tokens_per_s=1e3 * count / alone_scaled,
        kinds={name: {"ms": kinds[name], "host_ms": host[name], "device_alone_ms": alone[name]} for name in kinds},
    )  # fmt: skip
    if model.device.type == "cuda" and not work.rehearsal:
        emit(what="decode profile", batch=count, **profile_device(decoding.rewind().step, 4))
    emit(what="decode host", batch=count, own_ms=profile_host(decoding.rewind().step, 4))


def growth(decoding: Decoding, steps: int, emit: Emit) -> None:
    """Steps of a conversation that gets its pages one by one: shows what is compiled or rebuilt as it grows."""
    (sequence,), times = decoding.sequences, []
    start = sequence.length
    for _ in range(steps):
        assert decoding.model.cache.reserve(sequence, sequence.length + 1)
        times.append(1e3 * decoding.step()[2])
    emit(what="growth", start=start, steps=steps, median_ms=statistics.median(times), slowest_ms=sorted(times)[-4:])


def talk(model: RandomModel, work: Work, folder: Path, emit: Emit) -> dict[str, Tensor]:
    """One conversation through the product, twice, so that the second meets compiled kernels; what it leaves in the cache."""
    with Product(model, folder, work.chunk) as product:
        product.ask("warm", random_prompt(model, work.context, 1), 1 + work.steps)
        product.drop("warm")
        answer = product.ask("talk", random_prompt(model, work.context, 2), 1 + work.steps)
        emit(what="product decode", batch=1, context=work.context, token_ms=answer.stats.decode_ms / work.steps)
        sequence = product.sequence("talk")
        assert sequence.length == work.context + work.steps
        rows = model.cache.export_rows(sequence, 0, sequence.length)
        product.drop("talk")
    return rows


def measure_decode(model: RandomModel, work: Work, folder: Path, emit: Emit) -> None:
    """Steps of one and of several conversations that were really read."""
    rows = None if work.rehearsal else talk(model, work, folder / "talk", emit)
    for batch in work.batches:
        decoding = conversations(model, batch, work.context + work.steps, 2 * work.steps, rows)
        with part(emit, "decode"):
            decode(model, decoding, work, emit)
        decoding.close()


def measure_growth(model: RandomModel, work: Work, emit: Emit) -> None:
    """A long conversation that grows, and a short one."""
    for start, steps in ((work.context, work.growth), (SHORT, work.growth // 2)):
        decoding = conversations(model, 1, start, 0)
        growth(decoding, steps, emit)
        decoding.close()


def measure_graph(model: RandomModel, work: Work, emit: Emit) -> None:
    """Steps repeated from recordings, as the scheduler makes them, and how far they are from the same steps when run.
    On a CPU they are run in both cases. Comes last: a failed recording may leave the device unusable."""
    record: Record = CudaRecorder(model.device) if model.device.type == "cuda" else lambda step: step
    for batch in work.batches:
        decoding = conversations(model, batch, work.context, 2 * work.steps)
        graphs = StepGraphs(model.transformer, model.cache, record)
        differences, times = [], []
        for number in range(work.few + work.steps):
            start = time.perf_counter()
            logits = graphs(decoding.chunks())
            issued = time.perf_counter()
            assert logits is not None, "steps of this model cannot be recorded; the log says why"
            best = logits.argmax(-1).tolist()
            times.append((issued - start, time.perf_counter() - start))
            if number < work.few:  # to run a step again writes the same rows again
                expected = model.transformer(decoding.batch())
                differences.append(float((logits - expected).norm() / expected.norm()))
                assert best == expected.argmax(-1).tolist(), "a repeated step chooses another token"
            decoding.advance()
        issue, whole = (1e3 * statistics.mean(column) for column in zip(*times[work.few :], strict=True))
        emit(
            what="graph", batch=batch, context=work.context, step_ms=whole, issue_ms=issue,
            scaled_ms=whole * len(model.whole.layers) / len(model.spec.layers), differences=differences,
        )  # fmt: skip
        decoding.close()
