"""One reply in the making: what was asked, what has been generated, and the channel to whoever listens."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Literal

from engine.cache.cache import CachedSequence, Snapshot
from engine.chat.detokenizer import AnswerStream
from engine.chat.prompt import Prompt
from engine.errors import EngineError
from engine.events import Event, Stats
from engine.generation.sampler import Sampler
from engine.state.store import RestoredPrefix

_KEPT_SNAPSHOTS = 8


@dataclass(eq=False)
class Conversation:
    """What the scheduler remembers of a conversation between replies. Touched by the engine thread only."""

    key: str
    sequence: CachedSequence | None = None
    cached: Prompt | None = None  # the tokens in `sequence`
    snapshots: list[Snapshot] = field(default_factory=list)
    answers: dict[str, list[int]] = field(default_factory=dict)  # text the model wrote -> its exact ids
    sealed: list[tuple[int, str]] = field(default_factory=list)  # (tokens, key) of saved segments below `sequence`
    last_used: float = 0.0
    busy: bool = False
    closed: bool = False

    def remember(self, snapshot: Snapshot) -> None:
        """Keep a snapshot; old ones go first."""
        others = [s for s in self.snapshots if s.length != snapshot.length]
        self.snapshots = [*others[1 - _KEPT_SNAPSHOTS :], snapshot]


@dataclass(eq=False)
class Request:
    """A prompt to answer. `tokens` grows by every sampled id; ids before `fed` are in the cache."""

    conversation: Conversation
    prompt: Prompt
    sampler: Sampler
    stream: AnswerStream
    eos_ids: frozenset[int]
    max_tokens: int | None
    events: queue.SimpleQueue[Event | EngineError | None] = field(default_factory=queue.SimpleQueue)
    cancelled: threading.Event = field(default_factory=threading.Event)
    state: Literal["waiting", "prefill", "decode", "done"] = "waiting"
    tokens: list[int] = field(default_factory=list)
    fed: int = 0
    reused: int = 0
    restored: int = 0
    saved: RestoredPrefix | None = None  # verified state from disk that may be longer than what is live
    announced_position: int = -1
    started: float = field(default_factory=time.perf_counter)
    admitted: float = 0.0
    first_token: float = 0.0
    restore_ms: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt.ids)

    def next_position(self, length: int) -> int:
        """Rope position (time row) of the token behind the first `length`."""
        if length < len(self.prompt):
            return int(self.prompt.rope_positions[0, length])
        return self.prompt.next_position + length - len(self.prompt)

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.prompt)

    def stats(self, context_limit_tokens: int) -> Stats:
        """Counters and times up to now."""
        now = time.perf_counter()
        admitted = self.admitted or now
        first = self.first_token or now
        return Stats(
            prompt_tokens=len(self.prompt),
            reused_tokens=self.reused,
            restored_tokens=self.restored,
            new_tokens=self.generated,
            context_tokens=self.fed,
            context_limit_tokens=context_limit_tokens,
            queue_ms=1e3 * (admitted - self.started),
            restore_ms=self.restore_ms,
            prefill_ms=1e3 * (first - admitted),
            decode_ms=1e3 * (now - first),
        )
