"""An engine for tests: the public face of the real one, scripted answers, no torch.

The last user text is the script: `slow` reads slowly, `long` writes many pieces, `think` thinks first,
`fail` raises, `break` raises something unexpected, `queue` waits for `go`, `forever` never ends, `restore` and `notice` speak
of saved state; else an echo."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, BadRequest, PromptTooLong
from engine.events import Event, Finished, Notice, Prefill, Queued, Restored, Stats, Text, Thinking
from engine.messages import Message, ReplyOptions

PIECE_S = 0.01
READ_S = 0.05  # one of the 600 steps in which `slow` reads: nobody waits for its end


@dataclass(frozen=True)
class Progress:
    stage: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class PlanLine:
    label: str
    tier: str
    nbytes: int
    reason: str


@dataclass(frozen=True)
class Plan:
    lines: tuple[PlanLine, ...] = (
        PlanLine("dense weights", "RAM", 30_000_000, "used by every token"),
        PlanLine("KV cache", "RAM", 10_000_000, "4 full conversations"),
        PlanLine("experts", "disk", 90_000_000, "in the checkpoint files, read when needed"),
    )
    cache_tokens: int = 16_384
    budget_bytes: int = 60_000_000
    ram_budget_bytes: int = 60_000_000
    warnings: tuple[str, ...] = ("The context is limited by <memory>.",)


@dataclass(frozen=True)
class Info:
    name: str = "fake-model"
    path: Path = Path("fake")
    family: str = "fake"
    sees_images: bool = True
    thinks: bool = True
    context_tokens: int = 4096
    num_parameters: int = 1_000_000
    active_parameters: int = 500_000
    disk_bytes: int = 2_000_000
    fingerprint: str = "00"


@dataclass
class FakeEngine:
    model_info: Any = field(default_factory=Info)
    plan: Plan = field(default_factory=Plan)
    expert_use: Any = None
    asked: list[list[Message]] = field(default_factory=list)
    options: list[ReplyOptions] = field(default_factory=list)
    closed: bool = False
    deleted: list[str] = field(default_factory=list)
    sessions: dict[str, FakeSession] = field(default_factory=dict)
    most_at_once: int = 0
    at_once: int = 0
    go: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def open(
        cls, model_path: Path, settings: Any = None, on_progress: Callable[[Progress], None] | None = None
    ) -> FakeEngine:
        if model_path.name == "broken":
            raise BadCheckpoint(f"'{model_path.name}' has no config.json.")
        if on_progress is not None:
            on_progress(Progress("reading tensors", 1, 2))
        return cls()

    def start(self, conversation_id: str) -> FakeSession:
        return self.sessions.setdefault(conversation_id, FakeSession(self, conversation_id))

    def check_messages(self, messages: Sequence[Message]) -> int:
        return sum(len(message.text.split()) for message in messages)

    def delete(self, conversation_id: str) -> None:
        self.deleted.append(conversation_id)

    def close(self) -> None:
        self.closed = True


class FakeSession:
    def __init__(self, engine: FakeEngine, conversation_id: str) -> None:
        self.engine = engine
        self.id = conversation_id
        self.cancelled = threading.Event()
        self.busy = False
        self.closed = False

    def cancel(self) -> None:
        self.cancelled.set()

    def save(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self.engine.sessions.pop(self.id, None)

    def reply(self, messages: Sequence[Message], options: ReplyOptions = ReplyOptions()) -> Iterator[Event]:  # noqa: B008
        if self.busy:
            raise BadRequest("This conversation is still being answered.")
        self.engine.asked.append(list(messages))
        self.engine.options.append(options)
        self.cancelled.clear()
        return self._events(messages, options)

    def _events(self, messages: Sequence[Message], options: ReplyOptions) -> Iterator[Event]:
        self.busy = True
        self.engine.at_once += 1
        self.engine.most_at_once = max(self.engine.most_at_once, self.engine.at_once)
        started = time.monotonic()
        new_tokens = 0
        reason: Any = "stop"
        try:
            words = messages[-1].text.split("\n\n")[-1].split()  # turns without an answer arrive merged
            script = set(words)
            if "fail" in script:
                raise PromptTooLong("The conversation has 9,000 tokens, but this model reads at most 4,096.")
            if "break" in script:
                raise RuntimeError("unexpected trouble\nwith details")
            if "notice" in script:
                yield Notice("Saved state of this conversation was damaged and is not used; it is read again.")
            restored = 1200 if "restore" in script else 0
            if restored:
                yield Restored(restored, 45.0)
            if "queue" in script:
                yield Queued(1)
                self.engine.go.wait(60)
            total = 1800
            steps = 600 if "slow" in script else 2
            for step in range(1, steps + 1):
                if self.cancelled.wait(READ_S if "slow" in script else 0.0):
                    break
                yield Prefill(total * step // steps, total)
            prefilled = time.monotonic()
            for piece in self._pieces(messages, script):
                if self.cancelled.wait(PIECE_S):
                    break
                if options.max_tokens is not None and new_tokens >= options.max_tokens:
                    reason = "length"
                    break
                new_tokens += 1
                yield piece
            if self.cancelled.is_set():
                reason = "cancelled"
            yield Stats(
                prompt_tokens=total,
                reused_tokens=0,
                restored_tokens=restored,
                new_tokens=new_tokens,
                context_tokens=total + new_tokens,
                context_limit_tokens=4096,
                queue_ms=0.0,
                restore_ms=45.0 if restored else 0.0,
                prefill_ms=1e3 * (prefilled - started),
                decode_ms=1e3 * (time.monotonic() - prefilled),
            )
            yield Finished(reason)
        finally:
            self.busy = False
            self.engine.at_once -= 1

    @staticmethod
    def _pieces(messages: Sequence[Message], script: set[str]) -> Iterator[Event]:
        if "think" in script:
            for word in ("Let ", "me ", "ponder."):
                yield Thinking(word)
        if messages[-1].role == "assistant":
            yield Text("and the rest.")
            return
        if "forever" in script:
            number = 0
            while True:
                yield Text(f"word{number} ")
                number += 1
        if "long" in script:
            for number in range(80):
                yield Text(f"word{number} ")
            return
        if "evil" in script:
            yield Text('<script>window.hacked = 1</script><img src="http://example.invalid/a.png">')
            yield Text("\n![spy](http://example.invalid/spy.png)\n<form action='http://example.invalid'>x</form>\n")
            yield Text("```make\nall:\n\techo hi\n```\n")
            return
        pictures = sum(len(message.images) for message in messages)
        yield Text(f"You said: {messages[-1].text}")
        if pictures:
            yield Text(f" I see {pictures} picture{'s' if pictures > 1 else ''}.")
