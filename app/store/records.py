"""The store's values as plain data. Knows no SQL, no engine and no page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

MessageState = Literal["queued", "streaming", "done", "stopped", "error", "interrupted"]
UNFINISHED_STATES = ("queued", "streaming")


@dataclass(frozen=True)
class ReplySettings:
    """How the answers of one conversation are made. None: the model's own default."""

    system: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None


@dataclass(frozen=True)
class Conversation:
    """One line of the conversation list. `revision` grows with every change that a page must not overwrite."""

    id: str
    title: str
    created_at: float
    updated_at: float
    revision: int
    leaf_id: int | None
    settings: ReplySettings


@dataclass(frozen=True)
class Attachment:
    """A picture of a message: the name a person knows, the original file and its preview."""

    sha256: str
    name: str
    path: Path
    preview_path: Path
    width: int
    height: int


@dataclass(frozen=True)
class Message:
    """One node of the tree. `sibling_index` of `num_siblings` counts versions below the same parent."""

    id: int
    conversation_id: str
    parent_id: int | None
    role: Literal["user", "assistant"]
    text: str
    thinking: str
    state: MessageState
    finish_reason: str
    error: str
    stats: dict[str, Any]
    created_at: float
    attachments: tuple[Attachment, ...] = ()
    sibling_index: int = 0
    num_siblings: int = 1


@dataclass(frozen=True)
class Answer:
    """What the worker writes into an assistant message, partial or final."""

    text: str
    thinking: str
    state: MessageState
    finish_reason: str = ""
    error: str = ""
    stats: dict[str, Any] = field(default_factory=dict)
