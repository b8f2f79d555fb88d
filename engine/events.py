"""What `Session.reply` tells its caller while a request is served. Plain data; times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "context_full", "cancelled"]


@dataclass(frozen=True)
class Queued:
    """The request waits for room in the cache; `position` 0 is next."""

    position: int


@dataclass(frozen=True)
class Restored:
    """`tokens` of the prompt came back from saved state instead of being read."""

    tokens: int
    ms: float


@dataclass(frozen=True)
class Notice:
    """A sentence the person should see although the answer goes on, such as damaged saved state being left aside."""

    text: str


@dataclass(frozen=True)
class Prefill:
    """`done` of `total` new prompt tokens have been read."""

    done: int
    total: int


@dataclass(frozen=True)
class Thinking:
    """A piece of reasoning text; concatenate the pieces."""

    text: str


@dataclass(frozen=True)
class Text:
    """A piece of answer text; concatenate the pieces. Never half a character."""

    text: str


@dataclass(frozen=True)
class Stats:
    """Counters of one request, sent once right before `Finished`."""

    prompt_tokens: int  # whole prompt, images included
    reused_tokens: int  # of the prompt, found live in the cache
    restored_tokens: int  # of the prompt, found in saved state
    new_tokens: int  # generated
    context_tokens: int  # in the cache after the turn
    context_limit_tokens: int
    queue_ms: float
    restore_ms: float
    prefill_ms: float
    decode_ms: float

    @property
    def decode_tokens_per_second(self) -> float:
        """Generated tokens after the first, per second of decoding; 0 when only one token was made."""
        return 1e3 * (self.new_tokens - 1) / self.decode_ms if self.new_tokens > 1 and self.decode_ms > 0 else 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens that were really read, per second of prefill."""
        read = self.prompt_tokens - self.reused_tokens - self.restored_tokens
        return 1e3 * read / self.prefill_ms if self.prefill_ms > 0 else 0.0


@dataclass(frozen=True)
class Finished:
    """Last event. `stop`: the model ended or a stop string matched; `length`: max_tokens; `context_full`; `cancelled`."""

    reason: FinishReason


Event = Queued | Notice | Restored | Prefill | Thinking | Text | Stats | Finished
"""Order: (Queued | Notice)*, Restored?, Prefill*, (Thinking | Text)*, Stats, Finished."""
