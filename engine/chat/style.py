"""A family's conventions for chat text: how thinking is marked, where pictures go, how to write without a template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.messages import Message


@dataclass(frozen=True)
class EncodeOptions:
    """What a person may choose about the prompt."""

    thinking: bool
    reasoning_effort: str | None = None


Encoder = Callable[[Sequence[Message], EncodeOptions], str]
"""Messages to prompt text, with one image placeholder per picture."""


@dataclass(frozen=True)
class ChatStyle:
    """`image` is the placeholder a template writes per picture; `encode` is used when a checkpoint ships no template."""

    think_open: str | None = None
    think_close: str | None = None
    image: str | None = None
    encode: Encoder | None = None
    thinks_by_default: bool = True
