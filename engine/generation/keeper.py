"""Connects the scheduler with saved state: seals what a conversation has read and written, brings back what is on disk."""

from __future__ import annotations

import time

from engine.cache.cache import KvCache
from engine.events import Restored
from engine.generation.request import Request
from engine.state.segment import SavedSpan, SegmentHead, text_digest
from engine.state.store import StateStore


class StateKeeper:
    """Runs on the engine thread; the store does the disk work elsewhere."""

    def __init__(self, store: StateStore, cache: KvCache) -> None:
        self._store, self._cache = store, cache

    def bring_back(self, request: Request, live: int) -> int:
        """Copy verified segments behind the `live` tokens into the reserved pages; returns how many tokens are cached now."""
        saved, conversation = request.saved, request.conversation
        sequence = conversation.sequence
        if saved is None or sequence is None or saved.length <= live:
            return live
        start, tip = time.perf_counter(), saved.segments[-1]
        if not all(self._cache.accepts(s.head.start, s.head.stop, s.tensors, s is tip) for s in saved.segments):
            return live  # same key, other shapes: cannot happen with an honest file, and must not do harm
        self._cache.import_rows(sequence, saved.length, [(s.head.start, s.tensors) for s in saved.segments])
        for head in (segment.head for segment in saved.segments):
            if head.stop <= saved.length and (head.stop, head.key) not in conversation.sealed:
                conversation.sealed.append((head.stop, head.key))
        conversation.sealed.sort()
        if not self._cache.layout.rewindable:
            conversation.remember(self._cache.snapshot(sequence))
        request.restored = saved.length - live
        request.restore_ms = saved.read_ms + 1e3 * (time.perf_counter() - start)
        request.saved = None  # the pages hold it now; let the file go
        request.events.put(Restored(request.restored, request.restore_ms))
        return saved.length

    def seal(self, request: Request) -> None:
        """Save the tokens behind the last seal, up to what is in the cache.

        The scheduler calls this wherever somebody may go on later, so every seal keeps the frontiers of its end:

        | when | who goes on there |
        |---|---|
        | on the way through a long prompt | the same prompt after a kill; one that shares only this beginning |
        | one token before a prompt's end | the same prompt again, whose last token gives the logits |
        | at the end of a turn, also one that was stopped | the next turn |
        """
        conversation, stop = request.conversation, request.fed
        sequence = conversation.sequence
        while conversation.sealed and not self._store.holds(conversation.sealed[-1][1]):
            conversation.sealed.pop()  # it was never written; what it held is saved again with what is new
        start, parent = conversation.sealed[-1] if conversation.sealed else (0, "")
        if sequence is None or stop <= start:
            return
        answer = request.stream.answer
        known = answer in conversation.answers
        head = SegmentHead(
            model=self._store.model,
            layout=self._store.layout,
            parent=parent,
            start=start,
            stop=stop,
            token_ids=tuple(request.tokens[start:stop]),
            spans=tuple(
                SavedSpan(s.start, s.length, s.image.digest) for s in request.prompt.spans if start <= s.start < stop
            ),
            next_position=request.next_position(stop),
            answers=((text_digest(answer), tuple(conversation.answers[answer])),) if known else (),
        )
        self._store.seal(conversation.key, head, lambda: self._cache.export_rows(sequence, start, stop))
        conversation.sealed.append((stop, head.key))
