"""The engine's public face: everything the app, the benchmarks and servers use, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.chat.detokenizer import AnswerStream
from engine.chat.prompt import PrepareImage, Prompt
from engine.chat.style import EncodeOptions
from engine.errors import (
    BadCheckpoint,
    BadImage,
    BadRequest,
    BadState,
    DoesNotFit,
    EngineError,
    PromptTooLong,
    UnsupportedModel,
)
from engine.events import Event, Finished, FinishReason, Notice, Prefill, Queued, Restored, Stats, Text, Thinking
from engine.generation.forward import open_graphs
from engine.generation.keeper import StateKeeper
from engine.generation.request import Request
from engine.generation.sampler import Sampler, Sampling
from engine.generation.scheduler import Scheduler, SchedulerLimits
from engine.memory.plan import MemoryPlan, PlanLine
from engine.messages import Image, Message, ReplyOptions, Role
from engine.model.spec import Moe
from engine.model.spread import ExpertUse
from engine.report import CheckReport, check_model
from engine.report.text import report_text
from engine.runtime import Described, LoadProgress, OnProgress, Runtime, describe, open_runtime
from engine.settings import EngineSettings
from engine.state.answers import KnownAnswers
from engine.state.report import (
    SavedSegment,
    delete_saved,
    export_saved,
    import_saved,
    list_saved,
    prune_saved,
    verify_saved,
)
from engine.state.store import StateStore

__all__ = [
    "BadCheckpoint",
    "BadImage",
    "BadRequest",
    "BadState",
    "CheckReport",
    "DoesNotFit",
    "Engine",
    "EngineError",
    "EngineSettings",
    "Event",
    "FinishReason",
    "Finished",
    "Image",
    "LoadProgress",
    "MemoryPlan",
    "Message",
    "ModelInfo",
    "Notice",
    "PlanLine",
    "Prefill",
    "PromptTooLong",
    "Queued",
    "ReplyOptions",
    "Restored",
    "Role",
    "SavedSegment",
    "Session",
    "Stats",
    "Text",
    "Thinking",
    "UnsupportedModel",
    "check_model",
    "delete_saved",
    "describe_model",
    "export_saved",
    "import_saved",
    "list_saved",
    "plan_model",
    "prune_saved",
    "report_text",
    "verify_saved",
]  # fmt: skip


@dataclass(frozen=True)
class ModelInfo:
    """What a person may want to know about a model."""

    name: str
    path: Path
    family: str
    sees_images: bool
    thinks: bool
    context_tokens: int
    num_parameters: int
    active_parameters: int
    disk_bytes: int
    fingerprint: str


def plan_model(path: Path, settings: EngineSettings | None = None) -> MemoryPlan:
    """The memory plan of a checkpoint on this machine; loads nothing. Raises as `Engine.open`."""
    return describe(path, settings or EngineSettings()).plan


def describe_model(path: Path, settings: EngineSettings | None = None) -> ModelInfo:
    """Facts about a checkpoint without loading it. Raises as `Engine.open`."""
    return _model_info(describe(path, settings or EngineSettings()))


def _model_info(described: Described, thinks: bool = False) -> ModelInfo:
    spec, total = described.spec, described.num_parameters
    idle = sum(
        3 * layer.mlp.width * spec.hidden * (layer.mlp.experts - layer.mlp.topk)
        for layer in spec.layers
        if isinstance(layer.mlp, Moe)
    )
    return ModelInfo(
        name=described.checkpoint.path.resolve().name,
        path=described.checkpoint.path,
        family=spec.family,
        sees_images=spec.vision is not None,
        thinks=thinks,
        context_tokens=described.plan.context_tokens,
        num_parameters=total,
        active_parameters=total - idle,
        disk_bytes=described.checkpoint.disk_bytes,
        fingerprint=described.checkpoint.fingerprint(),
    )


def _open_state(runtime: Runtime, settings: EngineSettings, fingerprint: str) -> StateStore:
    assert settings.state_dir is not None
    layout = runtime.described.layout
    types = sorted({f"{pool.packing} {pool.row_shape[1]}" for pool in layout.pools})
    return StateStore(
        folder=settings.state_dir,
        model=fingerprint,
        layout=", ".join(types),
        cut_anywhere=layout.rewindable,
        budget_bytes=settings.state_budget_bytes,
    )


class Engine:
    """One loaded model that serves many conversations. Safe to use from any thread."""

    def __init__(self, runtime: Runtime, settings: EngineSettings) -> None:
        """Use `Engine.open`."""
        self._runtime = runtime
        self._prepare = PrepareImage(runtime.prompts)
        plan = runtime.described.plan
        self.model_info = _model_info(runtime.described, runtime.prompts.thinks)
        self._state = (
            None if settings.state_dir is None else _open_state(runtime, settings, self.model_info.fingerprint)
        )
        self._scheduler = Scheduler(
            runtime.model,
            runtime.cache,
            SchedulerLimits(plan.context_tokens, plan.prefill_chunk_tokens, settings.max_batch),
            None if self._state is None else StateKeeper(self._state, runtime.cache),
            open_graphs(runtime.model.transformer, runtime.cache, plan) if settings.cuda_graphs else None,
        )
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, model_path: Path, settings: EngineSettings | None = None, on_progress: OnProgress | None = None
    ) -> Engine:
        """Load a checkpoint directory. Raises BadCheckpoint, UnsupportedModel or DoesNotFit."""
        settings = settings or EngineSettings()
        return cls(open_runtime(Path(model_path), settings, on_progress), settings)

    @property
    def plan(self) -> MemoryPlan:
        """Where the memory went."""
        return self._runtime.described.plan

    @property
    def expert_use(self) -> ExpertUse | None:
        """Where the experts that answers asked for were found, counted since opening; None unless they are spread."""
        return self._runtime.expert_use

    def start(self, conversation_id: str) -> Session:
        """The session of a conversation; the same object while it is open."""
        with self._lock:
            if conversation_id not in self._sessions:
                self._sessions[conversation_id] = Session(self, conversation_id)
            return self._sessions[conversation_id]

    def check_messages(self, messages: Sequence[Message], options: ReplyOptions | None = None) -> int:
        """Number of prompt tokens of a conversation. Raises BadRequest, BadImage or PromptTooLong."""
        prompt = self._prompt(messages, options or ReplyOptions(), {})
        limit = self.plan.context_tokens
        if len(prompt) >= limit:
            raise PromptTooLong(f"The conversation has {len(prompt):,} tokens, but the context holds {limit:,}.")
        return len(prompt)

    def close(self) -> None:
        """Cancel everything, write what is left of the state, and free the model."""
        self._scheduler.close()
        if self._state is not None:
            self._state.close()
        self._sessions.clear()

    def delete(self, conversation_id: str) -> None:
        """Forget a conversation: its memory, and its saved state that no other conversation shares."""
        with self._lock:
            self._sessions.pop(conversation_id, None)
        self._scheduler.forget(self._scheduler.conversation(conversation_id))
        if self._state is not None:
            self._state.delete(conversation_id)

    def _prompt(self, messages: Sequence[Message], options: ReplyOptions, answers: Mapping[str, list[int]]) -> Prompt:
        thinking = (
            self._runtime.described.family.chat.thinks_by_default if options.thinking is None else options.thinking
        )
        encode = EncodeOptions(thinking and self._runtime.prompts.thinks, options.reasoning_effort)
        prompts = self._runtime.prompts
        build = prompts.build_continued if options.continue_last else prompts.build
        return build(messages, encode, answers, self._prepare)

    def _default(self, options: ReplyOptions, key: str, otherwise: Any) -> Any:
        value = getattr(options, key)
        if value is None:
            value = self._runtime.defaults.get(key)
        return otherwise if value is None else value

    def _sampling(self, options: ReplyOptions) -> Sampling:
        greedy = self._runtime.defaults.get("do_sample") is False and options.temperature is None
        sampling = Sampling(
            repetition_penalty=float(self._default(options, "repetition_penalty", 1.0)),
            temperature=0.0 if greedy else float(self._default(options, "temperature", 1.0)),
            top_k=int(self._default(options, "top_k", 0)),
            top_p=float(self._default(options, "top_p", 1.0)),
            min_p=float(self._default(options, "min_p", 0.0)),
            seed=options.seed,
        )
        sampling.check()
        return sampling

    def _max_tokens(self, options: ReplyOptions) -> int | None:
        limit = options.max_tokens if options.max_tokens is not None else self._runtime.defaults.get("max_new_tokens")
        if limit is not None and limit < 1:
            raise BadRequest(f"max_tokens is {limit}; it must be at least 1.")
        return limit


class Session:
    """One conversation with the engine. Made by `Engine.start`."""

    def __init__(self, engine: Engine, conversation_id: str) -> None:
        self._engine, self._id = engine, conversation_id
        self._cancelled: threading.Event | None = None  # of the reply that is prepared or served
        self._lock = threading.Lock()

    def reply(self, messages: Sequence[Message], options: ReplyOptions | None = None) -> Iterator[Event]:
        """Answer the last message, or go on with it (`continue_last`).

        The whole conversation is passed each time; only what is new is read.
        Blocks between events; closing the iterator early cancels. Raises EngineError kinds, before the first event for
        requests that make no sense.
        """
        cancelled = threading.Event()
        with self._lock:
            if self._cancelled is not None:
                raise BadRequest("This conversation is still answering; stop it or wait.")
            self._cancelled = cancelled
        try:
            request = self._prepare(messages, options or ReplyOptions(), cancelled)
            self._engine._scheduler.submit(request)
        except BaseException:
            self._ended(cancelled)
            raise
        return Reply(self, request)

    def _prepare(self, messages: Sequence[Message], options: ReplyOptions, cancelled: threading.Event) -> Request:
        """Prompt, options and saved state of a reply; `cancelled` may be set meanwhile."""
        engine, runtime = self._engine, self._engine._runtime
        conversation = engine._scheduler.conversation(self._id)
        known = KnownAnswers(dict(conversation.answers), engine._state)
        prompt = engine._prompt(messages, options, known)
        sampling = engine._sampling(options)
        stream = AnswerStream(
            runtime.tokens,
            runtime.prompts.think_open,
            runtime.prompts.think_close,
            prompt.opens_thinking,
            options.stop,
        )
        if prompt.continued_tokens:
            stream.go_on(prompt.ids[-prompt.continued_tokens :], messages[-1].text)
        request = Request(
            conversation=conversation,
            prompt=prompt,
            sampler=Sampler(sampling, runtime.cache.device),
            stream=stream,
            eos_ids=runtime.eos_ids,
            max_tokens=engine._max_tokens(options),
            cancelled=cancelled,
        )
        if engine._state is not None and not cancelled.is_set():
            cached = conversation.cached
            live = 0 if cached is None else min(prompt.common_prefix(cached), len(prompt) - 1)
            request.saved = engine._state.restore(prompt, live, self._id)
            for sentence in engine._state.take_notices():
                request.events.put(Notice(sentence))
        return request

    def _cancel(self, cancelled: threading.Event) -> None:
        cancelled.set()
        self._engine._scheduler.wake()

    def _ended(self, cancelled: threading.Event) -> None:
        with self._lock:
            if self._cancelled is cancelled:
                self._cancelled = None

    def cancel(self) -> None:
        """Stop answering within one token or one prefill chunk; the iterator ends with Finished("cancelled").

        A reply that is still being prepared (pictures, prompt, saved state) ends so as soon as it is asked for events.
        """
        with self._lock:
            cancelled = self._cancelled
        if cancelled is not None:
            self._cancel(cancelled)

    def save(self) -> None:
        """Wait until the conversation's state is on the disk. Without a state directory there is nothing to do."""
        if self._engine._state is not None:
            self._engine._state.flush()

    def close(self) -> None:
        """Free the conversation's memory."""
        engine = self._engine
        engine._scheduler.forget(engine._scheduler.conversation(self._id))
        with engine._lock:
            engine._sessions.pop(self._id, None)


class Reply(Iterator[Event]):
    """The events of one answer. Closing it, or losing the last reference to it, cancels what is not finished.

    A class and not a generator: the code of a generator that nobody ever asked for an event does not run when it is closed.
    """

    def __init__(self, session: Session, request: Request) -> None:
        self._session, self._request = session, request
        self._open = True

    def __next__(self) -> Event:
        if not self._open:
            raise StopIteration
        event = self._request.events.get()
        if event is None:
            self._end()
            raise StopIteration
        if isinstance(event, (Finished, EngineError)):  # nothing but the closing None follows
            self._request.events.get()
            self._end()
        if isinstance(event, EngineError):
            raise event
        return event

    def close(self) -> None:
        """Cancel, wait until the engine has let go, and free the session for its next reply."""
        if self._open:
            self._session._cancel(self._request.cancelled)
            while self._request.events.get() is not None:
                pass
            self._end()

    def _end(self) -> None:
        self._open = False
        self._session._ended(self._request.cancelled)

    def __del__(self) -> None:
        self.close()
