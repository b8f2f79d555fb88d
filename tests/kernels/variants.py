"""Counts what Triton would compile: each combination of compile-time values of a kernel is one variant."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

Variant = tuple[Hashable, ...]


class _Spy:
    def __init__(self, kernel: Any, seen: set[Variant], launch: bool) -> None:
        self.kernel, self.seen, self.launch = kernel, seen, launch

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            self.seen.add(self._variant(args, kwargs))
            return self.kernel[grid](*args, **kwargs) if self.launch else None

        return launch

    def _variant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Variant:
        signature, names = inspect.signature(self.kernel.fn), set(kwargs)
        options = getattr(self.kernel, "kwargs", None) or vars(self.kernel)  # interpreted or compiled
        free, unaligned = (
            set(options.get(name) or ()) for name in ("do_not_specialize", "do_not_specialize_on_alignment")
        )
        given = {n: v for n, v in kwargs.items() if n in signature.parameters}
        bound = signature.bind(*args, **given).arguments
        values = [(n, _kind(n, v, n in names, free, unaligned)) for n, v in bound.items()]
        return (self.kernel.fn.__name__, *values, *sorted((n, v) for n, v in kwargs.items() if n not in given))


def _kind(name: str, value: Any, constant: bool, free: set[str], unaligned: set[str]) -> Hashable:
    """What the compiler is told of an argument. Constants are passed by keyword throughout."""
    if constant:
        return str(value)
    if isinstance(value, Tensor):
        return str(value.dtype)
    if isinstance(value, int) and not isinstance(value, bool) and name not in free:
        return "one" if value == 1 else value >= 1 << 31, name in unaligned or value % 16 == 0
    return type(value).__name__


def spy(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *kernels: str, launch: bool = True) -> set[Variant]:
    """Watch kernels of a module; the returned set grows by every new variant that is (or would be) launched."""
    seen: set[Variant] = set()
    for name in kernels:
        monkeypatch.setattr(module, name, _Spy(getattr(module, name), seen, launch))
    return seen
