"""Rendering of a checkpoint's own chat template in a sandbox. Templates are data from a stranger: no attribute tricks, no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from engine.chat.sandbox import BoundedEnvironment, TemplateTooGreedy, limited_time
from engine.chat.style import EncodeOptions
from engine.errors import BadCheckpoint, BadRequest
from engine.messages import Message


class TemplateRefusal(Exception):
    """Raised by a template itself, for example about the order of roles."""


def _refuse(reason: str) -> None:
    raise TemplateRefusal(reason)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


class ChatTemplate:
    """A compiled chat_template with the special tokens it may name."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except (TemplateSyntaxError, RecursionError) as problem:
            raise BadCheckpoint(f"The chat template of this checkpoint is not valid: {_reason(problem)}.") from problem
        self._special = special_tokens

    def render(self, messages: Sequence[Message], options: EncodeOptions) -> str:
        """Prompt text that ends where the assistant's answer begins."""
        extra: dict[str, Any] = {"enable_thinking": options.thinking, "thinking": options.thinking}
        if options.reasoning_effort is not None:
            extra["reasoning_effort"] = options.reasoning_effort
        try:
            with limited_time():
                return self._template.render(
                    messages=[_as_dict(m) for m in messages],
                    add_generation_prompt=True,
                    tools=None,
                    **self._special,
                    **extra,
                )
        except TemplateRefusal as refusal:
            raise BadRequest(f"The model's chat template refuses these messages: {_reason(refusal)}.") from refusal
        except (TemplateError, TemplateTooGreedy) as problem:
            raise BadCheckpoint(f"The chat template of this checkpoint fails: {_reason(problem)}.") from problem
        except Exception as problem:  # whatever Python raises for a stranger's expression
            raise BadCheckpoint(
                f"The chat template of this checkpoint fails with {type(problem).__name__.removesuffix('Error')}: "
                f"{_reason(problem)}."
            ) from problem


def _reason(problem: Exception) -> str:
    """The message in one line, without its full stop."""
    return " ".join(str(problem).split()).rstrip(".")[:300] or "no reason given"


def _as_dict(message: Message) -> dict[str, Any]:
    content: Any = message.text
    if message.images:
        text = [{"type": "text", "text": message.text}] if message.text else []
        content = [{"type": "image"} for _ in message.images] + text
    made: dict[str, Any] = {"role": message.role, "content": content}
    if message.thinking:
        made["reasoning_content"] = message.thinking
    return made
