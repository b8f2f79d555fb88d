"""A line of a memory plan, and byte counts for people."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Tier = Literal["GPU", "RAM", "disk"]


@dataclass(frozen=True)
class PlanLine:
    """One use of memory."""

    label: str
    tier: Tier
    nbytes: int
    reason: str


def gib(nbytes: int) -> str:
    """A byte count for people."""
    if nbytes >= 1 << 30:
        return f"{nbytes / (1 << 30):,.2f} GiB"
    return f"{nbytes / (1 << 20):,.1f} MiB"


def gib_needed(nbytes: int) -> str:
    """Rounded up, and `gib_allowed` down: what is needed never reads like what is allowed where it is more."""
    return gib(_whole_steps(nbytes, math.ceil))


def gib_allowed(nbytes: int) -> str:
    """See `gib_needed`."""
    return gib(_whole_steps(nbytes, math.floor))


def _whole_steps(nbytes: int, towards: Callable[[float], int]) -> int:
    """A multiple of the last decimal that `gib` shows; ceil and floor of the same step cannot meet between two counts."""
    unit, steps = (1 << 30, 100) if nbytes >= 1 << 30 else (1 << 20, 10)
    return round(towards(nbytes * steps / unit) * unit / steps)
