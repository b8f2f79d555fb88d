"""The engine thread: serves many conversations at once, mixing one prefill chunk with everyone's decode step.

Owns the model, the cache and the device. Knows tokens and pages, not messages or files.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.cache.cache import KvCache
from engine.chat.prompt import Prompt
from engine.errors import EngineError, PromptTooLong
from engine.events import Finished, FinishReason, Prefill, Queued
from engine.generation.forward import Forward, chunk_of
from engine.generation.keeper import StateKeeper
from engine.generation.pictures import EncodedPictures
from engine.generation.request import Conversation, Request
from engine.generation.sampler import next_tokens
from engine.model.batch import Chunk
from engine.model.loader import LoadedModel
from engine.model.step_graphs import StepGraphs

log = logging.getLogger(__name__)
T = TypeVar("T")
SEAL_EVERY_TOKENS = 2048  # of a long prompt, so that a kill loses little


@dataclass(frozen=True)
class SchedulerLimits:
    """How much one step may do. `context_tokens` is the longest conversation."""

    context_tokens: int
    prefill_chunk_tokens: int
    max_batch: int


class Scheduler:
    """Runs requests to their end on its own thread. Public methods may be called from any thread."""

    def __init__(
        self,
        model: LoadedModel,
        cache: KvCache,
        limits: SchedulerLimits,
        keeper: StateKeeper | None = None,
        graphs: StepGraphs | None = None,
    ) -> None:
        self._model, self._cache, self._limits, self._keeper = model, cache, limits, keeper
        self._wake = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._waiting: deque[Request] = deque()
        self._active: list[Request] = []
        self._conversations: dict[str, Conversation] = {}
        self._forward = Forward(model.transformer, cache, graphs)
        self._pictures = EncodedPictures(model.vision, cache.device)
        self._stopping = False
        self.steps = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def conversation(self, key: str) -> Conversation:
        """The conversation under this key, made if new."""
        with self._wake:
            return self._conversations.setdefault(key, Conversation(key))

    def submit(self, request: Request) -> None:
        """Queue a request. Its events arrive in request.events; None ends them."""
        longest = min(self._limits.context_tokens, self._cache.capacity_tokens)
        if len(request.prompt) >= longest:
            raise PromptTooLong(
                f"The conversation has {len(request.prompt):,} tokens, but this model and its cache hold {longest:,}; "
                "start a new conversation or shorten the message."
            )
        if not self._post(lambda: self._waiting.append(request)):
            raise EngineError("The engine has been closed; open the model again.")

    def forget(self, conversation: Conversation) -> None:
        """Free everything a conversation holds, once it is not busy. A new one may take its key at once."""
        with self._wake:
            if self._conversations.get(conversation.key) is conversation:
                del self._conversations[conversation.key]

        def close() -> None:
            conversation.closed = True
            for request in [*self._active, *self._waiting]:
                if request.conversation is conversation:
                    request.cancelled.set()
            if not conversation.busy:
                self._unload(conversation)

        self._post(close)

    def wake(self) -> None:
        """Look again at cancel flags now."""
        self._post(lambda: None)

    def close(self) -> None:
        """End the thread; open requests finish as cancelled."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _post(self, action: Callable[[], None]) -> bool:
        """Let the engine thread do something; False if it has been told to end."""
        with self._wake:
            if self._stopping:
                return False
            self._inbox.append(action)
            self._wake.notify()
            return True

    # ---------------------------------------------------------------- engine thread

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._inbox or self._active or self._waiting or self._stopping):
                    self._wake.wait()
                actions, self._inbox = list(self._inbox), deque()
                stopping = self._stopping
            for action in actions:
                action()
            if stopping:
                for request in [*self._active, *self._waiting]:
                    self._finish(request, "cancelled")
                return
            try:
                self._turn()
            except Exception as error:  # an unforeseen fault must reach the person, not kill the thread silently
                self._fail(error, list(self._active))

    def _turn(self) -> None:
        for request in [*self._active, *self._waiting]:
            if request.cancelled.is_set():
                self._finish(request, "cancelled")
        self._admit()
        chunks = self._plan_step()
        if chunks:
            self._step(chunks)
        elif self._waiting and not self._active:
            with self._wake:
                self._wake.wait(0.05)

    def _admit(self) -> None:
        while self._waiting and len(self._active) < self._limits.max_batch:
            request = next((r for r in self._waiting if not r.conversation.busy), None)
            try:
                if request is None or not self._place(request):
                    break
            except Exception as error:
                assert request is not None
                self._fail(error, [request])
                continue
            self._waiting.remove(request)
            self._active.append(request)
        for position, request in enumerate(self._waiting):
            if request.announced_position != position:
                request.announced_position = position
                request.events.put(Queued(position))

    def _place(self, request: Request) -> bool:
        """Find the reusable prefix and room for the prompt; False if others must finish first."""
        conversation = request.conversation
        conversation.busy = True  # not to be evicted below
        if conversation.sequence is None:
            conversation.sequence = self._with_room(self._cache.open)
            if conversation.sequence is None:
                conversation.busy = False
                return False
            conversation.cached = None
        sequence = conversation.sequence
        reused = self._reusable(conversation, request)
        snapshot = next((s for s in conversation.snapshots if s.length == reused), None)
        self._cache.truncate(sequence, reused, snapshot)
        conversation.snapshots = [s for s in conversation.snapshots if s.length <= reused]
        conversation.sealed = [(tokens, key) for tokens, key in conversation.sealed if tokens <= reused]
        if not self._with_room(lambda: self._cache.reserve(sequence, len(request.tokens) + 1) or None):
            conversation.cached = self._prefix(request, reused)
            conversation.busy = False
            return False
        if self._keeper is not None:
            reused = self._keeper.bring_back(request, reused)
        request.fed = reused
        if request.generated == 0 and not request.admitted:
            request.reused, request.admitted = reused - request.restored, time.perf_counter()
        request.state = "prefill"
        self._announce_prefill(request)
        return True

    def _reusable(self, conversation: Conversation, request: Request) -> int:
        """Tokens of the request that the live cache already holds; at least one is left to be read for its logits."""
        if conversation.cached is None or conversation.sequence is None:
            return 0
        wanted = replace(request.prompt, ids=request.tokens)
        common = min(wanted.common_prefix(conversation.cached), conversation.sequence.length, len(wanted) - 1)
        if self._cache.layout.rewindable or common == conversation.sequence.length:
            return common
        return max((s.length for s in conversation.snapshots if s.length <= common), default=0)

    def _with_room(self, attempt: Callable[[], T | None]) -> T | None:
        """Try; while it fails, drop the least recently used idle conversation from the cache and try again."""
        while (result := attempt()) is None:
            with self._wake:  # others may add conversations meanwhile
                known = list(self._conversations.values())
            idle = [c for c in known if c.sequence is not None and not c.busy]
            if not idle:
                return None
            self._unload(min(idle, key=lambda c: c.last_used))
        return result

    def _unload(self, conversation: Conversation) -> None:
        if conversation.sequence is not None:
            self._cache.close(conversation.sequence)
        conversation.sequence, conversation.cached, conversation.snapshots, conversation.sealed = None, None, [], []

    def _plan_step(self) -> list[tuple[Request, Chunk]]:
        """Everyone's next token, and one chunk of the prompt that has waited longest."""
        chunks = []
        for request in [r for r in self._active if r.state == "decode"]:
            if request.state == "decode" and self._make_room(
                request, request.fed + 1
            ):  # an older one may need the room
                chunks.append((request, chunk_of(request, request.fed + 1, self._pictures)))
        chunks = [(r, c) for r, c in chunks if r.state == "decode"]  # making room may have sent one back to the queue
        prefilling = next((r for r in self._active if r.state == "prefill"), None)
        if prefilling is not None:
            stop = min(len(prefilling.tokens), prefilling.fed + self._limits.prefill_chunk_tokens)
            last = len(prefilling.tokens) - 1
            if not self._cache.layout.rewindable and prefilling.fed < last < stop:
                stop = last  # stop one short, so that the state can be kept for reading this prompt again
            if self._model.transformer.spec.whole_pictures:
                stop = prefilling.prompt.end_of_picture(stop)
            try:
                chunks.append((prefilling, chunk_of(prefilling, stop, self._pictures)))
            except Exception as error:  # its picture could not be encoded; nobody else is disturbed
                self._fail(error, [prefilling])
            else:
                self._active.remove(prefilling)  # next turn is another's
                self._active.append(prefilling)
        return chunks

    def _make_room(self, request: Request, tokens: int) -> bool:
        """Room for one more token, if need be by sending the youngest other request back to the queue."""
        sequence = request.conversation.sequence
        assert sequence is not None
        while self._with_room(lambda: self._cache.reserve(sequence, tokens) or None) is None:
            others = [r for r in self._active if r is not request and r.started > request.started]
            if not others:
                if any(r is not request for r in self._active):
                    self._requeue(request)
                else:
                    self._finish(request, "context_full")
                return False
            self._requeue(max(others, key=lambda r: r.started))
        return True

    def _requeue(self, request: Request) -> None:
        """Take a request out of the cache; it reads its tokens again when there is room."""
        self._active.remove(request)
        self._unload(request.conversation)
        request.conversation.busy = False
        request.state, request.fed = "waiting", 0
        self._waiting.appendleft(request)

    def _step(self, chunks: list[tuple[Request, Chunk]]) -> None:
        logits = self._forward([chunk for _, chunk in chunks])
        self.steps += 1
        wanting = [request for request, chunk in chunks if chunk.want_logits == "last"]
        tokens = iter(next_tokens(logits, [(request.sampler, request.tokens) for request in wanting]))
        for request, chunk in chunks:
            assert request.conversation.sequence is not None
            request.fed += len(chunk.token_ids)
            request.conversation.sequence.length = request.fed
            if (
                not self._cache.layout.rewindable
                and request.fed == len(request.tokens) - 1
                and request.state == "prefill"
            ):
                request.conversation.remember(self._cache.snapshot(request.conversation.sequence))
                self._seal(request)
            if request.state == "prefill":
                self._announce_prefill(request)
                if request.fed - self._sealed_tokens(request) >= SEAL_EVERY_TOKENS:
                    self._seal(request)
            if chunk.want_logits == "last":
                try:
                    self._next_token(request, next(tokens))
                except Exception as error:
                    self._fail(error, [request])

    def _next_token(self, request: Request, token: int | Exception) -> None:
        if isinstance(token, Exception):
            raise token
        if request.state == "prefill":
            request.state = "decode"
            request.first_token = request.first_token or time.perf_counter()
        if token in request.eos_ids:
            self._finish(request, "stop")
            return
        request.tokens.append(token)
        self._emit(request, request.stream.push(token))
        if request.stream.stopped:
            self._finish(request, "stop")
        elif request.max_tokens is not None and request.generated >= request.max_tokens:
            self._finish(request, "length")
        elif len(request.tokens) >= self._limits.context_tokens:
            self._finish(request, "context_full")

    @staticmethod
    def _emit(request: Request, events: Iterable[object]) -> None:
        for event in events:
            request.events.put(event)  # type: ignore[arg-type]

    @staticmethod
    def _announce_prefill(request: Request) -> None:
        total = len(request.prompt) - request.reused - request.restored
        request.events.put(Prefill(min(max(request.fed - request.reused - request.restored, 0), total), total))

    def _prefix(self, request: Request, length: int) -> Prompt:
        """The first `length` tokens of a request as a prompt, for finding common prefixes later."""
        spans = tuple(s for s in request.prompt.spans if s.start < length)
        return replace(request.prompt, ids=request.tokens[:length], spans=spans)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.state == "done":
            return
        self._emit(request, request.stream.finish())
        self._release(request)
        request.events.put(request.stats(self._limits.context_tokens))
        request.events.put(Finished(reason))
        request.events.put(None)

    @staticmethod
    def _sealed_tokens(request: Request) -> int:
        sealed = request.conversation.sealed
        return sealed[-1][0] if sealed else 0

    def _seal(self, request: Request) -> None:
        """Hand what is new since the last seal to the writer."""
        if self._keeper is not None:
            self._keeper.seal(request)

    def _release(self, request: Request, failed: bool = False) -> None:
        """Leave the step loop; the conversation keeps what it has read and written."""
        conversation = request.conversation
        if request.stream.answer and not request.stream.stopped:
            conversation.answers[request.stream.answer] = list(request.stream.answer_ids)
        if request in self._active:
            self._active.remove(request)
            conversation.busy = False
            conversation.last_used = time.monotonic()
            conversation.cached = self._prefix(request, request.fed)
            if conversation.sequence is not None and not self._cache.layout.rewindable:
                conversation.remember(self._cache.snapshot(conversation.sequence))
            if conversation.sequence is not None and not failed:
                self._seal(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        request.state = "done"
        if conversation.closed and not conversation.busy:
            self._unload(conversation)

    def _fail(self, error: Exception, requests: list[Request]) -> None:
        """A step went wrong: these requests end with the error, their cached tokens are not trusted any more."""
        if not isinstance(error, EngineError):
            log.error("engine step failed", exc_info=error)
            reason = " ".join(str(error).split())
            error = EngineError(f"The engine failed unexpectedly ({type(error).__name__}: {reason}).")
        for request in requests:
            self._release(request, failed=True)
            request.conversation.busy = False
            self._unload(request.conversation)
            request.events.put(error)
            request.events.put(None)
