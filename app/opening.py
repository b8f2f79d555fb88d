"""The model while it opens in its own thread: progress, the ready engine, or the sentence why not.

Knows how to wait; how an engine is opened is a function it is given."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from app.refusals import Refusal
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.api import Engine, LoadProgress, ModelInfo

log = logging.getLogger("dayzero")


@dataclass(frozen=True)
class ModelStatus:
    """What a page says about the model. `info` is there once the phase is `ready`."""

    phase: Literal["loading", "ready", "failed"]
    name: str
    stage: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    error: str = ""
    info: ModelInfo | None = None

    @property
    def sentence(self) -> str:
        """The status in a few words."""
        if self.phase == "ready":
            return f"{self.name} is ready"
        if self.phase == "failed":
            return self.error
        part = f" {100 * self.done_bytes // self.total_bytes} %" if self.total_bytes > 0 else ""
        return f"Loading {self.name}: {self.stage or 'starting'}{part}"


class OpeningModel:
    """Opens one engine in the background; many threads may wait for it or ask how far it is."""

    def __init__(self, name: str, open_engine: Callable[[Callable[[LoadProgress], None]], Engine]) -> None:
        self._open = open_engine
        self._changed = threading.Condition()
        self._status = ModelStatus("loading", name)
        self._engine: Any = None
        self._thread = threading.Thread(target=self._run, name="open-model", daemon=True)
        self.on_failure: Callable[[str], None] = lambda sentence: None

    def start(self) -> OpeningModel:
        """Begin opening; returns itself."""
        self._thread.start()
        return self

    @property
    def status(self) -> ModelStatus:
        """How far it is."""
        return self._status

    @property
    def engine(self) -> Engine | None:
        """The engine if it is ready; never waits."""
        return self._engine if self._status.phase == "ready" else None

    def wait(self, should_stop: Callable[[], bool] = lambda: False) -> Engine | None:
        """The engine when it is ready; None when `should_stop` turned true before; Refusal when opening failed."""
        with self._changed:
            while self._status.phase == "loading" and not should_stop():
                self._changed.wait(0.1)
        if self._status.phase == "failed":
            raise Refusal(self._status.error)
        return self._engine

    def close(self) -> None:
        """Close the engine if it was opened; one that is still opening ends with the process."""
        if self._engine is not None:
            self._engine.close()

    def _run(self) -> None:
        name = self._status.name
        try:
            self._engine = self._open(self._progress)
            status = ModelStatus("ready", self._engine.model_info.name, info=self._engine.model_info)
        except (EngineError, Refusal) as error:
            status = ModelStatus("failed", name, error=str(error))
        except Exception as error:
            log.debug("opening the model failed", exc_info=True)
            status = ModelStatus("failed", name, error=f"The model could not be opened: {one_line(error)}.")
        with self._changed:
            self._status = status
            self._changed.notify_all()
        if status.phase == "failed":
            self.on_failure(status.error)

    def _progress(self, progress: LoadProgress) -> None:
        name = self._status.name
        self._status = ModelStatus("loading", name, progress.stage, progress.done_bytes, progress.total_bytes)


def one_line(error: BaseException) -> str:
    """An unexpected error as part of a sentence: its first line, or its kind when it says nothing."""
    lines = str(error).strip().splitlines()
    return (lines[0].rstrip(".") if lines else "") or type(error).__name__
