"""The schema as numbered steps. A step is never edited once published; a change is a new function at the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from app.refusals import StoreError


def _1_first_tables(db: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE conversations (
            id TEXT PRIMARY KEY,
            title TEXT NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            revision INTEGER NOT NULL DEFAULT 1,
            leaf_id INTEGER REFERENCES messages(id) ON DELETE SET NULL,
            system TEXT NOT NULL DEFAULT '',
            temperature REAL,
            max_tokens INTEGER,
            seed INTEGER,
            thinking INTEGER
        )""",
        """CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
            parent_id INTEGER REFERENCES messages(id) ON DELETE CASCADE,
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
            text TEXT NOT NULL DEFAULT '',
            thinking TEXT NOT NULL DEFAULT '',
            state TEXT NOT NULL
                CHECK (state IN ('queued', 'streaming', 'done', 'stopped', 'error', 'interrupted')),
            finish_reason TEXT NOT NULL DEFAULT '',
            error TEXT NOT NULL DEFAULT '',
            stats TEXT NOT NULL DEFAULT '{}',
            created_at REAL NOT NULL
        )""",
        """CREATE TABLE attachments (
            sha256 TEXT PRIMARY KEY,
            mime TEXT NOT NULL,
            width INTEGER NOT NULL,
            height INTEGER NOT NULL,
            size_bytes INTEGER NOT NULL
        )""",
        """CREATE TABLE message_attachments (
            message_id INTEGER NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            sha256 TEXT NOT NULL REFERENCES attachments(sha256),
            name TEXT NOT NULL,
            PRIMARY KEY (message_id, position)
        )""",
        "CREATE INDEX messages_by_conversation ON messages(conversation_id, parent_id)",
        "CREATE INDEX messages_by_parent ON messages(parent_id)",
        "CREATE INDEX attachments_by_hash ON message_attachments(sha256)",
    ):
        db.execute(statement)


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_1_first_tables,)


def migrate(db: sqlite3.Connection) -> None:
    """Bring the database to the newest version, one transaction per step; refuse one from a newer app."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreError(
            f"These conversations were written by a newer version of the app (format {version}, this one knows "
            f"{len(MIGRATIONS)}); update the app or choose another --data-dir."
        )
    for number in range(version, len(MIGRATIONS)):
        db.execute("BEGIN IMMEDIATE")
        try:
            MIGRATIONS[number](db)
            db.execute(f"PRAGMA user_version = {number + 1}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
