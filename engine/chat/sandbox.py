"""Where a stranger's chat template runs: no attribute tricks (jinja's sandbox), no endless loops, no giant values."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MOST_SECONDS = 5.0
_MOST = 1_000_000  # for any number that sets the size of something
_WIDE_FIELD = re.compile(r"\d{6}|\*")


class TemplateTooGreedy(Exception):
    """The template takes more time or memory than any prompt needs."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with limits on the operations whose result can be much larger than their input."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if operator == "**" and not (numbers and abs(left) <= _MOST and abs(right) <= 64):
            raise TemplateTooGreedy("it raises to a huge power")
        if operator == "*" and not numbers and _size(left) * _size(right) > _MOST:
            raise TemplateTooGreedy("it repeats something too often")
        if operator == "%" and isinstance(left, str) and _WIDE_FIELD.search(left):
            raise TemplateTooGreedy("it formats a huge field")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(__obj, "__wrapped__", __obj)
        owner, name = getattr(inner, "__self__", None), getattr(inner, "__name__", "")
        if isinstance(owner, str) and name.startswith("format") and _WIDE_FIELD.search(owner):
            raise TemplateTooGreedy("it formats a huge field")
        if any(isinstance(a, int) and abs(a) > _MOST for a in (*args, *kwargs.values())):
            raise TemplateTooGreedy("it asks for a huge size")
        return super().call(__context, __obj, *args, **kwargs)


def _size(value: Any) -> int:
    return abs(value) if isinstance(value, int) else len(value) if hasattr(value, "__len__") else 1


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise TemplateTooGreedy out of Python code inside that runs too long. Watches this thread line by line."""
    deadline, before = time.monotonic() + _MOST_SECONDS, sys.gettrace()

    def watch(frame: Any, event: str, argument: Any) -> Callable[..., Any]:
        if time.monotonic() > deadline:
            raise TemplateTooGreedy("it does not come to an end")
        return watch

    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)
