"""Conversation as pure values. Identity and storage belong to the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Image:
    """A picture: a file on disk, or its bytes. The engine decodes it itself and identifies it by its pixels."""

    source: Path | bytes


@dataclass(frozen=True)
class Message:
    """One turn. `images` come before `text`. `thinking` is the reasoning of an assistant turn, kept apart from its text."""

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    thinking: str = ""


@dataclass(frozen=True)
class ReplyOptions:
    """How to answer. `None` means: the checkpoint's own default (generation_config.json), else the value in the comment."""

    max_tokens: int | None = None  # until the context is full
    temperature: float | None = None  # 1.0; 0 is greedy
    top_p: float | None = None  # 1.0
    top_k: int | None = None  # 0 = off
    min_p: float | None = None  # 0.0
    repetition_penalty: float | None = None  # 1.0
    seed: int | None = None  # random
    stop: tuple[str, ...] = field(default=())  # stop strings, not part of the answer
    thinking: bool | None = None  # the family's default; ignored by models without a thinking mode
    reasoning_effort: str | None = None  # the family's default
    continue_last: bool = False  # the last message is an answer that broke off; go on with it, token by token
