"""A line of a memory plan, and byte counts for people."""

from __future__ import annotations

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
