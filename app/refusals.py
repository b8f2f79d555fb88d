"""Errors of this floor that a person reads. Knows no engine, page or database; each message is one sentence."""

from __future__ import annotations


class Refusal(Exception):
    """Something a person asked for cannot be done; `str(error)` is the one sentence they read."""


class StoreError(Refusal):
    """The conversations cannot be opened, read or written."""


class ChangedElsewhere(StoreError):
    """A page acted on an older revision of a conversation than the one stored."""


class Busy(Refusal):
    """The conversation is still being answered."""
