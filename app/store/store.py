"""The conversations of one data directory: the list, the tree of messages, their pictures, search.

Owns the lock, the database and the files. Knows no engine and no page; a caller passes and gets plain records."""

from __future__ import annotations

import builtins
import contextlib
import json
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from app.images import Picture
from app.refusals import ChangedElsewhere, StoreError
from app.store import tree, whole
from app.store.attachments import AttachmentFiles, make_private
from app.store.database import Database
from app.store.lock import DirectoryLock
from app.store.records import UNFINISHED_STATES, Answer, Conversation, Message, ReplySettings
from app.store.whole import WholeConversation

TITLE_CHARS = 60
MAX_TITLE_CHARS = 200
TRANSFER_PREFIX = "transfer-"  # of folders that an export or import uses while it runs
_NEW_CONVERSATION = (
    "INSERT INTO conversations (id, title, created_at, updated_at, system, temperature, max_tokens, seed, thinking)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Store:
    """Everything a person keeps. Methods may be called from any thread; every write is one transaction."""

    def __init__(self, directory: Path) -> None:
        make_private(directory)
        self.directory = directory
        self._lock = DirectoryLock(directory)
        # A picture file must not be dropped between being kept and being named by a message.
        self._files_lock = threading.Lock()
        try:
            self.files = AttachmentFiles(directory)
            self._database = Database(directory / "conversations.sqlite3")
            self._mark_interrupted()
            for leftover in directory.glob(f"{TRANSFER_PREFIX}*"):
                shutil.rmtree(leftover, ignore_errors=True)
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Close the database and let another instance have the directory."""
        self._database.close()
        self._lock.release()

    @property
    def num_writes(self) -> int:
        """Grows with every write; a reader whose number is unchanged need not ask again."""
        return self._database.num_writes

    # conversations

    def create(self, title: str, settings: ReplySettings | None = None) -> Conversation:
        """A new, empty conversation."""
        settings = settings or ReplySettings()
        now = time.time()
        identity = uuid.uuid4().hex
        with self._database.write() as db:
            db.execute(_NEW_CONVERSATION, (identity, _short(title), now, now, *_settings_row(settings)))
        return self.get(identity)

    def get(self, conversation_id: str) -> Conversation:
        """One conversation; a StoreError when it was deleted."""
        with self._database.read() as db:
            row = db.execute("SELECT * FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
        if row is None:
            raise StoreError("This conversation no longer exists.")
        return _conversation(row)

    def find(self, conversation_id: str) -> Conversation | None:
        """One conversation, or None when it was deleted or never existed."""
        with self._database.read() as db:
            row = db.execute("SELECT * FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
        return None if row is None else _conversation(row)

    def named(self, title: str) -> Conversation | None:
        """The conversation of this title that was used last, or None."""
        query = "SELECT * FROM conversations WHERE title IN (?, ?) ORDER BY updated_at DESC, rowid DESC LIMIT 1"
        with self._database.read() as db:
            row = db.execute(query, (_short(title), _short(title, MAX_TITLE_CHARS))).fetchone()
        return None if row is None else _conversation(row)

    def ids(self) -> set[str]:
        """Ids of all conversations."""
        with self._database.read() as db:
            return {row[0] for row in db.execute("SELECT id FROM conversations")}

    def list(self, search: str = "", limit: int = 200) -> list[Conversation]:
        """Conversations, newest first; with `search`, those whose title or messages hold every word."""
        query = "SELECT * FROM conversations c"
        words = search.casefold().split()
        values: list[Any] = []
        for number, word in enumerate(words):
            query += " AND " if number else " WHERE "
            query += (
                "(holds(c.title, ?) OR EXISTS"
                " (SELECT 1 FROM messages m WHERE m.conversation_id = c.id AND holds(m.text, ?)))"
            )
            values += [word, word]
        with self._database.read() as db:
            rows = db.execute(query + " ORDER BY c.updated_at DESC, c.rowid DESC LIMIT ?", (*values, limit)).fetchall()
        return [_conversation(row) for row in rows]

    def rename(self, conversation_id: str, title: str, revision: int | None = None) -> Conversation:
        """Give the conversation another title."""
        title = " ".join(title.split())
        if not title:
            raise StoreError("A conversation needs a name.")
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            db.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (_short(title, MAX_TITLE_CHARS), conversation_id)
            )
            _bump(db, conversation_id)
        return self.get(conversation_id)

    def configure(self, conversation_id: str, settings: ReplySettings, revision: int | None = None) -> Conversation:
        """Store how the next answers of this conversation are made."""
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            db.execute(
                "UPDATE conversations SET system = ?, temperature = ?, max_tokens = ?, seed = ?, thinking = ?"
                " WHERE id = ?",
                (*_settings_row(settings), conversation_id),
            )
            _bump(db, conversation_id)
        return self.get(conversation_id)

    def delete(self, conversation_id: str, revision: int | None = None) -> None:
        """Remove the conversation, its messages, and pictures that nothing else names."""
        with self._files_lock:
            self.files.drop(self._delete_rows(conversation_id, revision))

    def _delete_rows(self, conversation_id: str, revision: int | None) -> builtins.list[str]:
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            db.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
            orphans = [
                row[0]
                for row in db.execute(
                    "SELECT sha256 FROM attachments WHERE sha256 NOT IN (SELECT sha256 FROM message_attachments)"
                )
            ]
            db.executemany("DELETE FROM attachments WHERE sha256 = ?", [(sha256,) for sha256 in orphans])
        return orphans

    # a conversation as a whole

    def whole(self, conversation_id: str) -> WholeConversation:
        """Every message of the tree, for an export."""
        conversation = self.get(conversation_id)
        with self._database.read() as db:
            messages, leaf = whole.read_messages(db, conversation_id, conversation.leaf_id)
        return WholeConversation(conversation.title, conversation.created_at, conversation.settings, leaf, messages)

    def add_whole(self, parcel: WholeConversation, pictures: Mapping[str, Picture]) -> Conversation:
        """Store an imported conversation under a new id, with the pictures it names; all of it or nothing."""
        identity = uuid.uuid4().hex
        settings = _settings_row(parcel.settings)
        title = _short(parcel.title, MAX_TITLE_CHARS)
        with self._files_lock:
            try:
                for picture in pictures.values():
                    self.files.keep(picture.sha256, picture.content, picture.preview)
                with self._database.write() as db:
                    db.execute(_NEW_CONVERSATION, (identity, title, parcel.created_at, time.time(), *settings))
                    whole.insert_messages(db, identity, parcel, pictures)
            except BaseException:
                with contextlib.suppress(StoreError), self._database.read() as db:
                    named = {row[0] for row in db.execute("SELECT sha256 FROM attachments")}
                    self.files.drop(set(pictures) - named)
                raise
        return self.get(identity)

    # messages

    def add_user(
        self,
        conversation_id: str,
        parent_id: int | None,
        text: str,
        pictures: Sequence[Picture] = (),
        *,
        keep_from: int | None = None,
        revision: int | None = None,
    ) -> Message:
        """A user message below `parent_id` (None: a first message); `keep_from` copies the pictures of that message."""
        with self._files_lock:
            for picture in pictures:
                self.files.keep(picture.sha256, picture.content, picture.preview)
            return self._add_user_rows(
                conversation_id, parent_id, text, pictures, keep_from=keep_from, revision=revision
            )

    def _add_user_rows(
        self,
        conversation_id: str,
        parent_id: int | None,
        text: str,
        pictures: Sequence[Picture],
        *,
        keep_from: int | None,
        revision: int | None,
    ) -> Message:
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            message_id = _insert(db, conversation_id, parent_id, "user", text=text, state="done")
            names = [(picture.sha256, picture.name) for picture in pictures]
            for picture in pictures:
                db.execute(
                    "INSERT OR IGNORE INTO attachments (sha256, mime, width, height, size_bytes)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (picture.sha256, picture.mime, picture.width, picture.height, len(picture.content)),
                )
            if keep_from is not None:
                names += [tuple(row) for row in db.execute(tree.NAMES_OF_MESSAGE, (keep_from,))]
            db.executemany(
                "INSERT INTO message_attachments (message_id, position, sha256, name) VALUES (?, ?, ?, ?)",
                [(message_id, position, sha256, name) for position, (sha256, name) in enumerate(names)],
            )
            _point(db, conversation_id, message_id)
        return self.message(message_id)

    def add_answer(self, conversation_id: str, parent_id: int, revision: int | None = None) -> Message:
        """An empty, queued assistant message below a user message."""
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            message_id = _insert(db, conversation_id, parent_id, "assistant", text="", state="queued")
            _point(db, conversation_id, message_id)
        return self.message(message_id)

    def reopen_answer(self, conversation_id: str, message_id: int, revision: int | None = None) -> None:
        """An answer that broke off is being written again, behind the text it has."""
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            db.execute(
                "UPDATE messages SET state = 'streaming', finish_reason = '', error = '' WHERE id = ?", (message_id,)
            )
            _bump(db, conversation_id)

    def update_answer(self, message_id: int, answer: Answer) -> None:
        """Write an answer, partial or final. The end of an answer is a new revision; more text is not."""
        with self._database.write() as db:
            row = db.execute("SELECT conversation_id, state FROM messages WHERE id = ?", (message_id,)).fetchone()
            if row is None:
                return  # the conversation was deleted while the answer was written
            db.execute(
                "UPDATE messages SET text = ?, thinking = ?, state = ?, finish_reason = ?, error = ?, stats = ?"
                " WHERE id = ?",
                (
                    answer.text,
                    answer.thinking,
                    answer.state,
                    answer.finish_reason,
                    answer.error,
                    json.dumps(answer.stats),
                    message_id,
                ),
            )
            if row["state"] != answer.state and answer.state not in UNFINISHED_STATES:
                _bump(db, row["conversation_id"])

    def message(self, message_id: int) -> Message:
        """One message with its pictures."""
        with self._database.read() as db:
            message = tree.message(db, self.files, message_id)
        if message is None:
            raise StoreError("This message no longer exists.")
        return message

    def path(self, conversation_id: str, leaf_id: int | None = None) -> builtins.list[Message]:
        """Messages from the first to `leaf_id` (None: the branch that is shown)."""
        with self._database.read() as db:
            return tree.path(db, self.files, conversation_id, leaf_id)

    def siblings(self, message_id: int) -> builtins.list[int]:
        """Ids of all versions below the same parent, oldest first, the message itself included."""
        with self._database.read() as db:
            return tree.siblings(db, message_id)

    def show_branch(self, conversation_id: str, message_id: int, revision: int | None = None) -> Conversation:
        """Make the newest leaf below `message_id` the branch that is shown."""
        with self._database.write() as db:
            _check_revision(db, conversation_id, revision)
            db.execute(
                "UPDATE conversations SET leaf_id = ?, revision = revision + 1 WHERE id = ?",
                (tree.newest_leaf(db, message_id), conversation_id),
            )
        return self.get(conversation_id)

    def _mark_interrupted(self) -> None:
        with self._database.write() as db:
            db.execute("UPDATE messages SET state = 'interrupted' WHERE state IN ('queued', 'streaming')")


def read_titles(directory: Path) -> dict[str, str]:
    """Title of every conversation by id, without taking the directory from an app that is running; empty if unreadable."""
    path = directory / "conversations.sqlite3"
    if not path.exists():
        return {}
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as db:
            return dict(db.execute("SELECT id, title FROM conversations"))
    except sqlite3.Error:
        return {}


def _insert(
    db: sqlite3.Connection,
    conversation_id: str,
    parent_id: int | None,
    role: Literal["user", "assistant"],
    *,
    text: str,
    state: str,
) -> int:
    if parent_id is not None:
        row = db.execute("SELECT conversation_id FROM messages WHERE id = ?", (parent_id,)).fetchone()
        if row is None or row[0] != conversation_id:
            raise StoreError("The message to answer no longer exists.")
    cursor = db.execute(
        "INSERT INTO messages (conversation_id, parent_id, role, text, state, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (conversation_id, parent_id, role, text, state, time.time()),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _point(db: sqlite3.Connection, conversation_id: str, leaf_id: int) -> None:
    db.execute("UPDATE conversations SET leaf_id = ? WHERE id = ?", (leaf_id, conversation_id))
    _bump(db, conversation_id)


def _bump(db: sqlite3.Connection, conversation_id: str) -> None:
    db.execute(
        "UPDATE conversations SET revision = revision + 1, updated_at = ? WHERE id = ?", (time.time(), conversation_id)
    )


def _check_revision(db: sqlite3.Connection, conversation_id: str, revision: int | None) -> None:
    row = db.execute("SELECT revision FROM conversations WHERE id = ?", (conversation_id,)).fetchone()
    if row is None:
        raise StoreError("This conversation no longer exists.")
    if revision is not None and row[0] != revision:
        raise ChangedElsewhere("This conversation was changed elsewhere and is shown anew; please try again.")


def _short(title: str, limit: int = TITLE_CHARS) -> str:
    title = " ".join(title.split())
    return title if len(title) <= limit else title[: limit - 1].rstrip() + "…"


def _settings_row(settings: ReplySettings) -> tuple[Any, ...]:
    thinking = None if settings.thinking is None else int(settings.thinking)
    return (settings.system, settings.temperature, settings.max_tokens, settings.seed, thinking)


def _conversation(row: sqlite3.Row) -> Conversation:
    return Conversation(
        id=row["id"],
        title=row["title"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        revision=row["revision"],
        leaf_id=row["leaf_id"],
        settings=ReplySettings(
            system=row["system"],
            temperature=row["temperature"],
            max_tokens=row["max_tokens"],
            seed=row["seed"],
            thinking=None if row["thinking"] is None else bool(row["thinking"]),
        ),
    )
