"""The sentences of the evaluation, so that training can leave them out."""

from __future__ import annotations

import re

from assets.training.heldout import questions as q

_TABLES = (
    q.NO_PICTURE,
    q.BEYOND,
    q.SUMS,
    q.DIFFERENCES,
    q.CAPITALS,
    q.DAYS_AFTER,
    q.OPPOSITES,
    q.SPELLINGS,
    q.DEFINITIONS,
)
_SPELLINGS = (("colour", "color"), ("centre", "center"), ("grey", "gray"), ("favourite", "favorite"))


def plain(text: str) -> str:
    """Case, spelling and marks do not make another question."""
    text = text.lower()
    for theirs, ours in _SPELLINGS:
        text = text.replace(theirs, ours)
    return " ".join(re.sub(r"[^a-z{} ]", "", text).split())


HELD = [t for many in q.ASKED.values() for t in many]
HELD += [t for table in _TABLES for t in table]
HELD += [t for pair in q.FACTS.values() for many in pair for t in many]
_RESERVED = frozenset(map(plain, HELD))


def is_free(text: str) -> bool:
    """Whether training may use a sentence or template."""
    return plain(text) not in _RESERVED
