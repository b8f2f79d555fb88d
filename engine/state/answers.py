"""Which token ids an answer of this model had: tokenizers would cut many a text differently when reading it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.state.store import StateStore


class KnownAnswers(Mapping[str, list[int]]):
    """Exact ids of answers this model wrote: of the live conversation, else from saved state."""

    def __init__(self, live: Mapping[str, list[int]], state: StateStore | None) -> None:
        self._live, self._state = live, state

    def _find(self, text: object) -> list[int] | None:
        if text in self._live:
            return self._live[str(text)]
        return self._state.answer_ids(str(text)) if self._state is not None and text else None

    def __getitem__(self, text: str) -> list[int]:
        found = self._find(text)
        if found is None:
            raise KeyError(text)
        return found

    def __contains__(self, text: object) -> bool:
        return self._find(text) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._live)

    def __len__(self) -> int:
        return len(self._live)
