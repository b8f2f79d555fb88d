"""From stored messages to what the engine is asked. Pure functions over the store's records; knows no page."""

from __future__ import annotations

from collections.abc import Sequence

from app.store import Message, ReplySettings
from engine import messages as engine_messages
from engine.messages import Image, ReplyOptions


def build_prompt(settings: ReplySettings, path: Sequence[Message]) -> list[engine_messages.Message]:
    """The whole conversation for the engine: the system text, then the turns.

    Answers that never got a word are left out, and user turns that then follow each other become one,
    because most models only know alternating turns."""
    turns: list[engine_messages.Message] = []
    if settings.system.strip():
        turns.append(engine_messages.Message("system", settings.system.strip()))
    for message in path:
        if message.role == "assistant":
            if message.text.strip():
                turns.append(engine_messages.Message("assistant", message.text, thinking=message.thinking))
            continue
        pictures = tuple(Image(attachment.path) for attachment in message.attachments)
        if turns and turns[-1].role == "user":
            last = turns.pop()
            text = "\n\n".join(part for part in (last.text, message.text) if part)
            turns.append(engine_messages.Message("user", text, last.images + pictures))
        else:
            turns.append(engine_messages.Message("user", message.text, pictures))
    return turns


def reply_options(settings: ReplySettings, continue_last: bool = False) -> ReplyOptions:
    """The stored settings in the engine's words."""
    return ReplyOptions(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
        thinking=settings.thinking,
        continue_last=continue_last,
    )
