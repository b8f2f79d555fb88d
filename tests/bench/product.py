"""The product's own path around a random model: scheduler, state keeper and state store, without text and tokenizer."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.cache.cache import CachedSequence
from engine.chat.prompt import Prompt, layout_prompt
from engine.errors import EngineError
from engine.events import Restored, Stats
from engine.generation.keeper import StateKeeper
from engine.generation.request import Request
from engine.generation.sampler import Sampler, Sampling
from engine.generation.scheduler import Scheduler, SchedulerLimits
from engine.model.loader import LoadedModel
from engine.state.store import StateStore
from tests.bench.layer_clock import wait
from tests.bench.random_model import RandomModel

PARTS = ("decode", "prefill", "growth", "graph")
Emit = Callable[..., None]  # of one result, as keyword arguments
GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Work:
    """What is measured. `steps` and `few` are multiples of 4, so that every step of a compressor's window counts alike."""

    parts: tuple[str, ...] = PARTS
    context: int = 8192
    prompt: int = 32768
    chunk: int = 4096
    batches: tuple[int, ...] = (1, 8)
    steps: int = 32
    few: int = 8
    repeats: int = 3
    growth: int = 136
    rehearsal: bool = False  # only what has to be compiled, decode steps on zeros

    @property
    def cache_tokens(self) -> int:
        talks = (max(self.batches) + 1) * (self.context + 3 * self.steps + self.growth + 256)
        return talks + 2 * (self.prompt + 1024)


@contextmanager
def part(emit: Emit, name: str) -> Iterator[None]:
    """What goes wrong in one part is reported, and the next part runs."""
    try:
        yield
    except Exception as error:
        emit(what="failed", part=name, error=f"{type(error).__name__}: {error}", where=traceback.format_exc()[-1500:])


class _Mute:
    """An answer nobody reads."""

    stopped, answer = False, ""
    answer_ids: tuple[int, ...] = ()

    def push(self, token: int) -> tuple[object, ...]:
        return ()

    def finish(self) -> tuple[object, ...]:
        return ()


class _Keeper(StateKeeper):
    """Counts the time the engine thread spends on handing state over."""

    sealing_s = 0.0

    def seal(self, request: Request) -> None:
        wait(self._cache.device)
        start = time.perf_counter()
        super().seal(request)
        self.sealing_s += time.perf_counter() - start


@dataclass(frozen=True)
class Answer:
    """What one request took. `wall_s` counts from looking for saved state to the end."""

    stats: Stats
    restored: Restored | None
    wall_s: float


class Product:
    """Scheduler and state store around a model, as an engine has them."""

    def __init__(self, model: RandomModel, folder: Path, chunk: int) -> None:
        layout = model.cache.layout
        types = sorted({f"{pool.packing} {pool.row_shape[1]}" for pool in layout.pools})
        self.store = StateStore(folder, "random", ", ".join(types), layout.rewindable)
        self.keeper = _Keeper(self.store, model.cache)
        limits = SchedulerLimits(model.spec.context_tokens, chunk, 16)
        self.scheduler = Scheduler(LoadedModel(model.transformer, None), model.cache, limits, self.keeper)
        self._device = model.device

    def __enter__(self) -> Product:
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.close()
        self.store.close()

    def ask(self, name: str, prompt: Prompt, answer_tokens: int, saved: bool = False) -> Answer:
        """Read a prompt and answer it; with `saved`, from the state on disk."""
        request = Request(
            self.scheduler.conversation(name), prompt, Sampler(GREEDY, self._device), _Mute(), frozenset(), answer_tokens,
        )  # type: ignore[arg-type]  # fmt: skip
        wait(self._device)
        request.started = start = time.perf_counter()
        if saved:
            request.saved = self.store.restore(prompt, 0, name)
        self.scheduler.submit(request)
        events = list(iter(request.events.get, None))
        wall_s = time.perf_counter() - start
        for event in events:
            if isinstance(event, EngineError):
                raise event
        (stats,) = (event for event in events if isinstance(event, Stats))
        return Answer(stats, next((event for event in events if isinstance(event, Restored)), None), wall_s)

    def sequence(self, name: str) -> CachedSequence:
        """Where a conversation lies in the cache."""
        sequence = self.scheduler.conversation(name).sequence
        assert sequence is not None
        return sequence

    def drop(self, name: str) -> None:
        """Free a conversation's memory; what is saved stays."""
        self.scheduler.forget(self.scheduler.conversation(name))


def random_prompt(model: RandomModel, tokens: int, seed: int) -> Prompt:
    """Text tokens, all of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return layout_prompt(torch.randint(model.spec.vocab, (tokens,), generator=generator).tolist(), (), None)
