"""Generated ids to text pieces: whole characters only, reasoning apart from the answer, stop strings held back."""

from __future__ import annotations

from collections.abc import Sequence

from engine.chat.tokens import Tokens
from engine.events import Text, Thinking

_BROKEN = "\ufffd"
_MOST_HELD = 3  # characters; of an unfinished one at most three bytes are there, each shown as one U+FFFD at worst
_MOST_PENDING = 8  # ids; longer runs of broken bytes are not half a character


class Detokenizer:
    """Incremental decoding: characters are given out when no later id can change them."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._context: list[int] = []  # ids already given out that the next ones may join with
        self._pending: list[int] = []
        self._given = 0  # characters of context and pending together that are out

    def push(self, token_id: int) -> str:
        """Text that became complete with this id, often empty in the middle of a character."""
        self._pending.append(token_id)
        text = self._decode()
        ready = len(text) - _unfinished(text)
        piece = text[self._given : ready]
        self._given = max(ready, self._given)
        if ready == len(text):
            self._shift(0)
        elif len(self._pending) >= _MOST_PENDING:
            self._shift(_MOST_PENDING // 2)
        return piece

    def flush(self) -> str:
        """What is left, without half a character at its end."""
        piece = self._decode()[self._given :].rstrip(_BROKEN)
        self._shift(0)
        return piece

    def _decode(self) -> str:
        return self._tokens.decode(self._context + self._pending)

    def _shift(self, keep: int) -> None:
        """Forget old ids; the last `keep` stay pending."""
        cut = len(self._pending) - keep
        self._context, self._pending = self._pending[:cut], self._pending[cut:]
        text = self._decode()
        self._given = len(text) - (_unfinished(text) if keep else 0)


def _unfinished(text: str) -> int:
    """How many characters at the end may still become one whole character."""
    return min(len(text) - len(text.rstrip(_BROKEN)), _MOST_HELD)


class StopFilter:
    """Finds stop strings across pieces. Text that may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.matched = False

    def push(self, piece: str) -> str:
        """Text that certainly belongs to the answer."""
        if not self._stops or self.matched:
            return "" if self.matched else piece
        self._held += piece
        hits = [self._held.find(stop) for stop in self._stops if stop in self._held]
        if hits:
            self.matched = True
            ready, self._held = self._held[: min(hits)], ""
            return ready
        keep = max((n for stop in self._stops for n in range(1, len(stop)) if self._held.endswith(stop[:n])), default=0)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return ready

    def flush(self) -> str:
        ready, self._held = ("" if self.matched else self._held), ""
        return ready


class AnswerStream:
    """Turns ids into Thinking and Text events. `answer` and `answer_ids` are what the conversation keeps."""

    def __init__(
        self, tokens: Tokens, think_open: int | None, think_close: int | None, thinking: bool, stops: Sequence[str]
    ) -> None:
        self._tokens, self._open, self._close = tokens, think_open, think_close
        self._thinking = thinking
        self._detokenizer, self._filter = Detokenizer(tokens), StopFilter(stops)
        self.answer, self.answer_ids = "", list[int]()

    @property
    def stopped(self) -> bool:
        """A stop string has been seen."""
        return self._filter.matched

    def go_on(self, answer_ids: Sequence[int], answer: str) -> None:
        """Begin in the middle of an answer of which this much is known; none of it is given out again."""
        for token_id in answer_ids:
            self._detokenizer.push(token_id)
        self.answer, self.answer_ids = answer, list(answer_ids)

    def push(self, token_id: int) -> list[Thinking | Text]:
        """Events that this id completes."""
        if token_id == self._close and self._close is not None:
            events = self._end_part()
            self._thinking = False
            return events
        if token_id == self._open and self._open is not None and not self.answer.strip():
            events = self._end_part()
            self._thinking = True
            return events
        if not self._thinking:
            self.answer_ids.append(token_id)
        return self._give(self._detokenizer.push(token_id))

    def finish(self) -> list[Thinking | Text]:
        """The rest, after the last id."""
        return self._end_part()

    def _give(self, piece: str) -> list[Thinking | Text]:
        if self._thinking:
            return [Thinking(piece)] if piece else []
        piece = self._filter.push(piece)
        self.answer += piece
        return [Text(piece)] if piece else []

    def _end_part(self) -> list[Thinking | Text]:
        events = self._give(self._detokenizer.flush())
        self._detokenizer = Detokenizer(self._tokens)
        if not self._thinking:
            rest = self._filter.flush()
            self.answer += rest
            events += [Text(rest)] if rest else []
        return events
