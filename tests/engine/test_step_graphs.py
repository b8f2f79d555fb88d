"""Recorded steps: repeated from their numbers alone they give, bit for bit, what running them gives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.api import BadRequest, Engine, ReplyOptions
from engine.cache.cache import CachedSequence
from engine.generation.forward import Forward
from engine.model import step_graphs
from engine.model.batch import Batch, Chunk, build_batch
from engine.model.step_graphs import Size, StepGraphs, size_of
from tests.engine.family_runner import Running, load_running, one_thread
from tests.engine.helpers import Answer, ask, check_cache, user
from tests.engine.single_tokens import FAMILIES, another, grown, next_chunks, same_state, text
from tests.engine.step_recorder import Recorder, Stopped, selections_of_fixed_width
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
GetEngine = Callable[..., Engine]


@pytest.fixture(scope="module", params=FAMILIES)
def running(request: pytest.FixtureRequest, oracle_case: GetCase) -> Running:
    return load_running(oracle_case(request.param).path)


@pytest.fixture(autouse=True)
def _like_a_gpu() -> Iterator[None]:
    with one_thread(), selections_of_fixed_width():
        yield


@dataclass
class Pair:
    """One model with two caches in one state: steps of the first are repeated from recordings, of the second run."""

    recorded: Running
    run: Running
    recorder: Recorder = field(default_factory=Recorder)
    turn: int = 0

    def __post_init__(self) -> None:
        self.graphs = StepGraphs(self.recorded.model.transformer, self.recorded.cache, self.recorder)
        self.live: list[tuple[CachedSequence, CachedSequence]] = []

    def both(self, act: Callable[[Running, CachedSequence], object], number: int) -> None:
        for running, sequence in zip((self.recorded, self.run), self.live[number], strict=True):
            act(running, sequence)

    def join(self, tokens: int) -> None:
        self.live.append((self.recorded.start(), self.run.start()))
        self.both(lambda running, own: running.read(text(running, tokens, tokens), tokens, own), -1)

    def leave(self, number: int) -> None:
        self.both(lambda running, own: running.close(own), number)
        del self.live[number]

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.turn += 1
            ours, theirs = [a for a, _ in self.live], [b for _, b in self.live]
            logits = self.graphs(next_chunks(self.recorded, ours, self.turn, turned=3))
            expected = logits_by_running(self.run, next_chunks(self.run, theirs, self.turn, turned=3))
            assert logits is not None and torch.equal(logits, expected), f"step {self.turn} of {len(ours)}"
            grown(ours + theirs)

    def end(self) -> None:
        same_state(self.recorded, self.run, [ours for ours, _ in self.live])
        for ours, theirs in self.live:
            assert (ours.row, ours.pages, ours.length) == (theirs.row, theirs.pages, theirs.length)
        while self.live:
            self.leave(0)


def logits_by_running(running: Running, chunks: Sequence[Chunk]) -> Tensor:
    """Of a step of the same size, built as any other."""
    size = size_of(chunks)
    sequences = [chunk.sequence for chunk in chunks]
    filled = [*chunks, *[chunks[0]] * (size.conversations - len(chunks))]
    own, sequences[0].pages = sequences[0].pages, sequences[0].pages + [0] * (size.pages - len(sequences[0].pages))
    batch = build_batch(filled, running.cache)
    sequences[0].pages = own
    return running.model.transformer(batch)[: len(chunks)]


@pytest.fixture
def pair(running: Running) -> Pair:
    return Pair(another(running), another(running))


def test_conversations_come_grow_and_go(pair: Pair) -> None:
    pair.join(60)
    pair.steps(8)  # over the edge of a page of 64 tokens and of windows
    pair.join(125)
    pair.steps(6)
    pair.join(253)
    pair.join(1)
    pair.steps(6)
    pair.leave(1)
    pair.steps(2)
    pair.leave(0)
    pair.join(5)  # in the place of one that has left
    pair.steps(4)
    assert (pair.recorder.recordings, pair.recorder.repeats) == (4, 7 + 5 + 5 + 1 + 4)
    pair.end()


def test_page_tables_that_outgrow_their_size(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graphs, "_LEAST_PAGES", 1)
    for tokens in (60, 252):
        pair.join(tokens)
        pair.steps(4)
        pair.steps(4)
        pair.leave(0)
    pair.join(61)
    pair.steps(7)  # sizes that are known
    assert pair.recorder.repeats >= 7 and pair.recorder.recordings >= 2
    pair.end()


def test_rows_to_spare_change_nothing(pair: Pair) -> None:
    for tokens in (1, 2, 3, 30, 31, 60, 62, 125, 126):
        pair.join(tokens)
    pair.steps(4)
    pair.leave(3)
    pair.leave(0)
    for tokens in (63, 100, 5):
        pair.join(tokens)
    pair.steps(3)  # as many as before, and one more
    assert pair.recorder.recordings == 1 and pair.recorder.repeats == 6
    pair.end()


def test_cut_back_and_restored_between_repeats(pair: Pair) -> None:
    saved: dict[str, Any] = {}

    def keep(running: Running, own: CachedSequence) -> None:
        saved.setdefault("snapshots", {})[id(running)] = running.cache.snapshot(own)

    def cut(running: Running, own: CachedSequence) -> None:
        snapshot = saved["snapshots"][id(running)]
        running.cache.truncate(own, snapshot.length, snapshot)

    def restored(running: Running, own: CachedSequence) -> None:
        rows = running.cache.export_rows(own, 0, own.length)
        length = own.length
        running.cache.truncate(own, 0)
        assert running.cache.reserve(own, length + 1)
        own.pages.reverse()  # restored to other places than before
        running.cache.import_rows(own, length, [(0, rows)])

    pair.join(124)
    pair.join(61)
    pair.steps(4)
    pair.both(keep, 0)
    pair.steps(5)
    pair.both(cut, 0)
    pair.steps(3)
    pair.both(restored, 0)
    pair.both(restored, 1)
    pair.steps(6)
    assert pair.recorder.recordings == 1
    pair.end()


# ---------------------------------------------------------------- what cannot be recorded


def test_what_asks_the_host_is_given_up_for_good(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(another(running), another(running))
    pair.join(5)
    pair.join(64)
    pair.steps(1)
    rotation = Batch.rotation

    def asking(batch: Batch, rope: Any) -> Tensor:
        return rotation(batch, rope) if bool(batch.positions[0] >= 0) else batch.positions

    monkeypatch.setattr(Batch, "rotation", asking)
    ours, theirs = [a for a, _ in pair.live], [b for _, b in pair.live]
    with caplog.at_level(logging.WARNING):
        chunks = next_chunks(pair.recorded, ours, 9)
        logits = pair.graphs(chunks)
        assert pair.graphs(chunks) is None
    assert [r.message for r in caplog.records if "not recorded" in r.message] == [
        "steps are not recorded: Stopped: aten.is_nonzero.default"
    ]
    again = Forward(pair.recorded.model.transformer, pair.recorded.cache, pair.graphs)(chunks)
    expected = pair.run.model.transformer(build_batch(next_chunks(pair.run, theirs, 9), pair.run.cache))
    assert logits is not None and torch.equal(logits, expected) and torch.equal(again, expected)
    grown(ours + theirs)
    pair.end()


def test_a_recording_that_gives_other_numbers_is_given_up(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.graphs = StepGraphs(pair.recorded.model.transformer, pair.recorded.cache, lambda step: lambda: step() * 0.9)
    pair.join(5)
    with caplog.at_level(logging.WARNING):
        pair.steps(2)
        assert pair.graphs(next_chunks(pair.recorded, [pair.live[0][0]], 9)) is None
    assert "off by 1.0e-01" in caplog.text
    pair.end()


@pytest.mark.parametrize(
    "stops",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x.any()),
        lambda x: x[x > 1],
        lambda x: x.nonzero(),
        lambda x: torch.tensor([1.0]) + x,
        lambda x: x[[0, 1]],
    ],
)
def test_the_stand_in_stops_where_a_gpu_would(stops: Callable[[Tensor], Any]) -> None:
    x = torch.arange(3.0)
    with pytest.raises(Stopped):
        Recorder()(lambda: stops(x))


def test_the_stand_in_repeats_what_it_saw() -> None:
    x, count = torch.zeros(3), [0]

    def step() -> Tensor:
        count[0] += 1
        return (x.view(1, 3) + count[0]).mul_(2)

    repeat = Recorder()(step)
    x.fill_(1.0)
    assert repeat().tolist() == [[4.0] * 3] and count == [1]


def test_sizes() -> None:
    def chunks(*pages: int) -> list[Chunk]:
        return [Chunk(CachedSequence(0, [0] * n), torch.zeros(1), torch.zeros(3, 1)) for n in pages]

    assert size_of(chunks(1)) == Size(1, 16) == size_of(chunks(16))
    assert size_of(chunks(17, 3)) == Size(2, 32)
    assert [size_of(chunks(*[1] * n)).conversations for n in (7, 8, 9, 12, 13, 16, 17)] == [7, 8, 12, 12, 16, 16, 20]


# ---------------------------------------------------------------- in the engine


def recording(engine: Engine) -> Recorder:
    """Let the engine's steps be recorded from now on."""
    recorder, runtime = Recorder(), engine._runtime
    graphs = StepGraphs(runtime.model.transformer, runtime.cache, recorder)
    engine._scheduler._forward = Forward(runtime.model.transformer, runtime.cache, graphs)
    return recorder


@pytest.mark.parametrize("family", ["hy_v4_vl", "deepseek_v4"])
def test_answers_of_an_engine(
    open_engine: GetEngine, oracle_case: GetCase, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """Answers that overlap with reading, with others and with a cancelled one."""
    wishes: dict[str, Any] = {"cache_tokens": 4096, "prefill_chunk_tokens": 16, "threads": 1}
    plain, engine = (open_engine(oracle_case(family).path, **wishes) for _ in range(2))
    recorder = recording(engine)
    chats = {"a": "Tell me about numbers.", "b": "Colours? " * 20, "c": "Hi", "d": "Shapes, in many words. " * 9}
    options = ReplyOptions(temperature=0.0, max_tokens=40)
    expected = {name: ask(plain.start(name), [user(said)], options).text for name, said in chats.items()}
    begun = threading.Event()

    def cancelled() -> Answer:
        events = []
        for event in engine.start("x").reply([user("Numbers, please. " * 6)], options):
            events.append(event)
            begun.set()
            if len(events) > 12:
                engine.start("x").cancel()
        return Answer(events)

    with ThreadPoolExecutor(5) as pool:
        stopped = pool.submit(cancelled)
        assert begun.wait(60)
        answers = {name: pool.submit(ask, engine.start(name), [user(said)], options) for name, said in chats.items()}
        assert {name: answer.result(120).text for name, answer in answers.items()} == expected
        assert stopped.result(60).reason == "cancelled"
    assert recorder.recordings >= 2 and recorder.repeats >= 40
    check_cache(engine)


def test_a_person_who_asks_for_what_cannot_be_had_is_told(open_engine: GetEngine) -> None:
    with pytest.raises(BadRequest, match="on a GPU only"):
        open_engine(cuda_graphs=True)
