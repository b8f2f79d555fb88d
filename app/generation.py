"""One answer while it is made: live text and progress in memory for whoever watches. Knows no store and no page."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Literal

from engine.events import Event, Finished, Notice, Prefill, Queued, Restored, Stats, Text, Thinking

Phase = Literal["model", "queued", "reading", "thinking", "writing", "finished"]
_SPEED_PIECES = 32


@dataclass(frozen=True)
class Live:
    """A moment of a generation, safe to keep and compare. `version` grows with every change."""

    conversation_id: str
    message_id: int
    version: int
    phase: Phase
    text: str
    thinking: str
    read_tokens: int
    total_tokens: int
    position: int
    restored_tokens: int
    restore_ms: float
    started_at: float
    thinking_ms: float
    tokens_per_second: float
    warning: str
    notices: tuple[str, ...]


class Generation:
    """Belongs to a conversation and a message, not to a page: any number of views may watch it, or none."""

    def __init__(self, conversation_id: str, message_id: int, begun: str = "") -> None:
        """`begun` is the text of an answer that broke off and goes on."""
        self.conversation_id = conversation_id
        self.message_id = message_id
        self.started_at = time.time()
        self.stop_asked = threading.Event()
        self.session: Any = None
        self.finish_reason = ""
        self.stats: dict[str, Any] = {}
        self.warning = ""
        self._changed = threading.Condition()
        self._version = 0
        self._phase: Phase = "model"
        self.goes_on = bool(begun)
        self._text: list[str] = [begun] if begun else []
        self._thinking: list[str] = []
        self._read = (0, 0)
        self._position = 0
        self._restored = (0, 0.0)
        self._notices: list[str] = []
        self._pieces_at: deque[float] = deque(maxlen=_SPEED_PIECES)
        self._thinking_since = 0.0
        self._thinking_ms = 0.0

    @property
    def finished(self) -> bool:
        """Whether the answer will not change any more."""
        return self._phase == "finished"

    @property
    def text(self) -> str:
        """Answer so far."""
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        """Reasoning so far."""
        return "".join(self._thinking)

    def take(self, event: Event) -> None:
        """Fold one engine event into the live state; nothing is taken once finished."""
        with self._changed:
            if self.finished:
                return
            match event:
                case Queued(position):
                    self._phase, self._position = "queued", position
                case Notice(text):
                    self._notices.append(text)
                case Restored(tokens, ms):
                    self._restored = (tokens, ms)
                case Prefill(done, total):
                    self._phase, self._read = "reading", (done, total)
                case Thinking(text):
                    if self._phase != "thinking":
                        self._thinking_since = time.monotonic()
                    self._phase = "thinking"
                    self._thinking.append(text)
                    self._thinking_ms = 1e3 * (time.monotonic() - self._thinking_since)
                case Text(text):
                    self._phase = "writing"
                    self._text.append(text)
                case Stats():
                    self.stats = {
                        **asdict(event),
                        "decode_tokens_per_second": event.decode_tokens_per_second,
                        "prefill_tokens_per_second": event.prefill_tokens_per_second,
                        "thinking_ms": self._thinking_ms,
                        **({"notices": list(self._notices)} if self._notices else {}),
                    }
                case Finished(reason):
                    self.finish_reason = reason
            if isinstance(event, (Text, Thinking)):
                self._pieces_at.append(time.monotonic())
            self._tell()

    @property
    def tokens_per_second(self) -> float:
        """How fast the last pieces came, about one token each; 0 before there are two."""
        times = list(self._pieces_at)
        spent = times[-1] - times[0] if len(times) > 1 else 0.0
        return (len(times) - 1) / spent if spent > 0 else 0.0

    def warn(self, sentence: str) -> None:
        """Show a sentence beside the live text (saving fails, the model is still loading); empty removes it."""
        with self._changed:
            if sentence != self.warning:
                self.warning = sentence
                self._tell()

    def finish(self) -> bool:
        """Close the generation; True for the one caller that closed it and therefore saves it."""
        with self._changed:
            first = not self.finished
            self._phase = "finished"
            self._tell()
            return first

    def snapshot(self) -> Live:
        """The state now."""
        with self._changed:
            return Live(
                conversation_id=self.conversation_id,
                message_id=self.message_id,
                version=self._version,
                phase=self._phase,
                text=self.text,
                thinking=self.thinking,
                read_tokens=self._read[0],
                total_tokens=self._read[1],
                position=self._position,
                restored_tokens=self._restored[0],
                restore_ms=self._restored[1],
                started_at=self.started_at,
                thinking_ms=self._thinking_ms,
                tokens_per_second=self.tokens_per_second,
                warning=self.warning,
                notices=tuple(self._notices),
            )

    def wait(self, version: int, timeout_s: float) -> Live:
        """The state once it is newer than `version`, or after the timeout."""
        with self._changed:
            if self._version <= version and not self.finished:
                self._changed.wait(timeout_s)
        return self.snapshot()

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()
