"""Reading the tree of messages: a path, versions below one parent, the newest leaf. Only SELECTs."""

from __future__ import annotations

import json
import sqlite3

from app.store.attachments import AttachmentFiles
from app.store.records import Attachment, Message

NAMES_OF_MESSAGE = "SELECT sha256, name FROM message_attachments WHERE message_id = ? ORDER BY position"

_PATH = """
WITH RECURSIVE up(id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM messages WHERE id = ? AND conversation_id = ?
    UNION ALL
    SELECT m.id, m.parent_id, up.depth + 1 FROM messages m JOIN up ON m.id = up.parent_id
)
SELECT m.* FROM messages m JOIN up ON m.id = up.id ORDER BY up.depth DESC
"""

_PICTURES = """
SELECT a.sha256, a.width, a.height, l.name FROM message_attachments l JOIN attachments a ON a.sha256 = l.sha256
WHERE l.message_id = ? ORDER BY l.position
"""


def path(db: sqlite3.Connection, files: AttachmentFiles, conversation_id: str, leaf_id: int | None) -> list[Message]:
    """Messages from the first one down to the leaf, or to the branch that is shown."""
    if leaf_id is None:
        row = db.execute("SELECT leaf_id FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
        leaf_id = row[0] if row else None
    if leaf_id is None:
        return []
    return [_message(db, files, row) for row in db.execute(_PATH, (leaf_id, conversation_id)).fetchall()]


def message(db: sqlite3.Connection, files: AttachmentFiles, message_id: int) -> Message | None:
    """One message, or None."""
    row = db.execute("SELECT * FROM messages WHERE id = ?", (message_id,)).fetchone()
    return None if row is None else _message(db, files, row)


def siblings(db: sqlite3.Connection, message_id: int) -> list[int]:
    """All versions below the same parent, oldest first."""
    rows = db.execute(
        "SELECT s.id FROM messages m JOIN messages s ON s.conversation_id = m.conversation_id"
        " AND s.parent_id IS m.parent_id AND s.role = m.role WHERE m.id = ? ORDER BY s.id",
        (message_id,),
    )
    return [row[0] for row in rows]


def newest_leaf(db: sqlite3.Connection, message_id: int) -> int:
    """Follow the newest child down from a message."""
    while True:
        row = db.execute("SELECT MAX(id) FROM messages WHERE parent_id = ?", (message_id,)).fetchone()
        if row[0] is None:
            return message_id
        message_id = row[0]


def _message(db: sqlite3.Connection, files: AttachmentFiles, row: sqlite3.Row) -> Message:
    versions = siblings(db, row["id"])
    pictures = tuple(
        Attachment(
            sha256=picture["sha256"],
            name=picture["name"],
            path=files.original(picture["sha256"]),
            preview_path=files.preview(picture["sha256"]),
            width=picture["width"],
            height=picture["height"],
        )
        for picture in db.execute(_PICTURES, (row["id"],))
    )
    return Message(
        id=row["id"],
        conversation_id=row["conversation_id"],
        parent_id=row["parent_id"],
        role=row["role"],
        text=row["text"],
        thinking=row["thinking"],
        state=row["state"],
        finish_reason=row["finish_reason"],
        error=row["error"],
        stats=json.loads(row["stats"]),
        created_at=row["created_at"],
        attachments=pictures,
        sibling_index=versions.index(row["id"]),
        num_siblings=len(versions),
    )
