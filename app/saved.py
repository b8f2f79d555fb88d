"""Saved state of conversations, seen from the app: which folder, deleting with a conversation, and how large it is.

What is in the folder is the engine's matter. Knows no page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.settings import state_dir
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.api import Engine

log = logging.getLogger("dayzero")


def forget(data_dir: Path, conversation_id: str, engine: Engine | None) -> None:
    """Delete what is kept of a conversation that no other one shares; without a loaded engine, on the disk alone."""
    if engine is not None:
        engine.delete(conversation_id)
    folder = state_dir(data_dir)
    if folder.is_dir():
        # Also with an engine: it may run without saved state, on a folder from a day when it had it.
        from engine.api import delete_saved

        delete_saved(folder, conversation_id)


def sweep(data_dir: Path, known: Callable[[], set[str]]) -> int:
    """Delete the state of conversations that no longer exist (the app was killed while deleting); returns how many."""
    folder = state_dir(data_dir)
    if not folder.is_dir():
        return 0
    from engine.api import delete_saved, list_saved

    try:
        named = {name for segment in list_saved(folder) for name in segment.conversations}
        gone = named - known()  # asked afterwards: a conversation that begins meanwhile is known
        for conversation_id in gone:
            delete_saved(folder, conversation_id)
    except EngineError as error:
        log.warning("%s", error)
        return 0
    return len(gone)


def size_bytes(data_dir: Path) -> int:
    """Bytes of all saved state on the disk."""
    total = 0
    for path in state_dir(data_dir).glob("*/*.kv"):
        try:
            total += path.stat().st_size
        except OSError:
            continue  # just removed
    return total
