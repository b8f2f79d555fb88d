"""Which implementation of an operator runs: triton, cpu (compiled C) or reference. Knows names and reasons, no arithmetic.

An operator is asked once per case (device, element type and whatever its key adds), logs the answer with its reason,
and from then on costs one dictionary lookup. A person's or a test's explicit choice is never replaced by another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

Kind = Literal["triton", "cpu", "reference"]
KINDS: tuple[Kind, ...] = ("triton", "cpu", "reference")

_log = logging.getLogger(__name__)


class KernelUnavailable(RuntimeError):
    """An explicitly chosen implementation cannot run; the text says which one and why."""


class Unsuitable(Exception):
    """Raised by an implementation's `suits` or its import to say why it is not to be used for a case."""


class Case(NamedTuple):
    """What a choice depends on: the device type, the element type, and an operator's own shape class."""

    device: str
    dtype: Hashable
    shape: Hashable = None


@dataclass(frozen=True)
class Implementation:
    """`module` holds the function under `name`, and may hold `suits(name, case)`, which raises Unsuitable."""

    kind: Kind
    module: str
    name: str

    def load(self, case: Case | None) -> Callable[..., Any]:
        """The function; raises Unsuitable with the reason if it cannot serve the case (None: cannot run here at all)."""
        try:
            module = import_module(self.module)
        except ImportError as error:
            raise Unsuitable(f"{error.name or error} cannot be imported") from error
        if hasattr(module, "suits"):
            module.suits(self.name, case)
        return getattr(module, self.name)


class Operator:
    """A public function of `kernels` that runs the implementation chosen for its arguments' case."""

    def __init__(self, name: str, key: Callable[..., Case], *implementations: Implementation) -> None:
        self.name, self._key = name, key
        self.implementations = {i.kind: i for i in implementations}
        self._chosen: dict[Case, Callable[..., Any]] = {}
        self._forced: Kind | None = None
        OPERATORS[name] = self

    def __call__(self, *arguments: Any) -> Any:
        case = self._key(*arguments)
        function = self._chosen.get(case)
        if function is None:
            function = self._choose(case)
        return function(*arguments)

    def force(self, kind: Kind | None) -> None:
        """Always run `kind` from now on; None returns to the automatic choice."""
        if kind is not None and kind not in self.implementations:
            raise KernelUnavailable(
                f"{self.name} has no {kind} implementation; it has {', '.join(self.implementations)}."
            )
        self._forced = kind
        self._chosen.clear()

    def _choose(self, case: Case) -> Callable[..., Any]:
        where = f"{self.name} for {' '.join(str(part) for part in case if part is not None)}"
        if self._forced is not None:
            try:
                function = self.implementations[self._forced].load(case)
            except Unsuitable as reason:
                raise KernelUnavailable(f"{where}: {self._forced} was chosen, but {reason}.") from reason
            _log.info("%s: %s, chosen explicitly", where, self._forced)
            self._chosen[case] = function
            return function
        reasons = []
        for kind in KINDS:
            if kind not in self.implementations:
                continue
            try:
                function = self.implementations[kind].load(case)
            except Unsuitable as reason:
                reasons.append(f"{kind}: {reason}")
                continue
            _log.info("%s: %s%s", where, kind, f" ({'; '.join(reasons)})" if reasons else "")
            self._chosen[case] = function
            return function
        raise KernelUnavailable(f"{where}: nothing can run it ({'; '.join(reasons)}).")


OPERATORS: dict[str, Operator] = {}


def operator(name: str, key: Callable[..., Case], package: str, *kinds: Kind) -> Operator:
    """Declare `name`; each kind's function has the same name in `package`.<kind>."""
    return Operator(name, key, *(Implementation(kind, f"{package}.{kind}", name) for kind in (*kinds, "reference")))


@contextmanager
def use(name: str, kind: Kind) -> Iterator[None]:
    """Inside the block, operator `name` runs `kind` or raises KernelUnavailable. For the whole process, not one thread."""
    chosen = OPERATORS[name]
    before = chosen._forced
    chosen.force(kind)
    try:
        yield
    finally:
        chosen.force(before)


class OperatorRow(NamedTuple):
    """One line of the operator table: for each kind None (does not exist), "" (can run here) or why it cannot."""

    name: str
    triton: str | None
    cpu: str | None
    reference: str | None


def operator_table() -> list[OperatorRow]:
    """Every operator with what exists and what can run on this machine, by name."""
    return [OperatorRow(name, *(_state(OPERATORS[name], kind) for kind in KINDS)) for name in sorted(_all_operators())]


def can_run(name: str, kind: Kind) -> bool:
    """Whether an operator's implementation can run on this machine (for some case)."""
    return _state(_all_operators()[name], kind) == ""


def _all_operators() -> dict[str, Operator]:
    for package in (
        "cache_rows", "compressor", "experts", "formats", "hyper_connection", "index_select", "linear",
        "norm", "rope", "router", "sampling", "sparse_attention", "swiglu",
    ):  # fmt: skip
        try:
            import_module(f"kernels.{package}")
        except ModuleNotFoundError as error:
            if error.name != f"kernels.{package}":
                raise
    return OPERATORS


def _state(entry: Operator, kind: Kind) -> str | None:
    if kind not in entry.implementations:
        return None
    try:
        entry.implementations[kind].load(None)
    except Unsuitable as reason:
        return str(reason)
    return ""
