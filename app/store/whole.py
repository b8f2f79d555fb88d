"""A conversation as a whole, for taking it elsewhere and back: every message of its tree, in one value."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.images import Picture
from app.store.records import MessageState, ReplySettings


@dataclass(frozen=True)
class WholeMessage:
    """One message; `parent` is its parent's place in the list, which is always further up. Images: (sha256, name)."""

    parent: int | None
    role: str
    text: str
    thinking: str
    state: MessageState
    finish_reason: str
    error: str
    stats: Mapping[str, Any]
    created_at: float
    images: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class WholeConversation:
    """Everything but the pictures' bytes. `leaf` is the place of the last message that is shown."""

    title: str
    created_at: float
    settings: ReplySettings
    leaf: int | None
    messages: Sequence[WholeMessage] = field(default=())


def read_messages(db: sqlite3.Connection, conversation_id: str, leaf_id: int | None) -> tuple[list[WholeMessage], Any]:
    """All messages, parents first, and the place of the leaf."""
    rows = db.execute("SELECT * FROM messages WHERE conversation_id = ? ORDER BY id", (conversation_id,)).fetchall()
    place = {row["id"]: number for number, row in enumerate(rows)}
    names = "SELECT sha256, name FROM message_attachments WHERE message_id = ? ORDER BY position"
    return [
        WholeMessage(
            parent=None if row["parent_id"] is None else place[row["parent_id"]],
            role=row["role"],
            text=row["text"],
            thinking=row["thinking"],
            state=row["state"],
            finish_reason=row["finish_reason"],
            error=row["error"],
            stats=json.loads(row["stats"]),
            created_at=row["created_at"],
            images=tuple((one["sha256"], one["name"]) for one in db.execute(names, (row["id"],))),
        )
        for row in rows
    ], place.get(leaf_id)


def insert_messages(
    db: sqlite3.Connection, conversation_id: str, whole: WholeConversation, pictures: Mapping[str, Picture]
) -> None:
    """Write all messages below an empty conversation and point it at the leaf."""
    db.executemany(
        "INSERT OR IGNORE INTO attachments (sha256, mime, width, height, size_bytes) VALUES (?, ?, ?, ?, ?)",
        [(one.sha256, one.mime, one.width, one.height, len(one.content)) for one in pictures.values()],
    )
    ids: list[int] = []
    for message in whole.messages:
        cursor = db.execute(
            "INSERT INTO messages (conversation_id, parent_id, role, text, thinking, state, finish_reason, error, stats,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                conversation_id,
                None if message.parent is None else ids[message.parent],
                message.role,
                message.text,
                message.thinking,
                message.state,
                message.finish_reason,
                message.error,
                json.dumps(dict(message.stats)),
                message.created_at,
            ),
        )
        assert cursor.lastrowid is not None
        ids.append(cursor.lastrowid)
        db.executemany(
            "INSERT INTO message_attachments (message_id, position, sha256, name) VALUES (?, ?, ?, ?)",
            [(ids[-1], position, sha256, name) for position, (sha256, name) in enumerate(message.images)],
        )
    if whole.leaf is not None:
        db.execute("UPDATE conversations SET leaf_id = ? WHERE id = ?", (ids[whole.leaf], conversation_id))
