"""A small SQLite index over segment files: who follows whom, who uses what, what is cold. Rebuilt from the files when lost."""

from __future__ import annotations

import logging
import sqlite3
import threading
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.errors import BadState
from engine.state.segment import SUFFIX, SavedSpan, SegmentHead, read_head

log = logging.getLogger(__name__)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, layout TEXT NOT NULL, parent TEXT NOT NULL,
    start INTEGER NOT NULL, stop INTEGER NOT NULL, token_ids BLOB NOT NULL, spans TEXT NOT NULL,
    nbytes INTEGER NOT NULL, use_order INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS segments_by_parent ON segments (model, layout, parent);
CREATE TABLE IF NOT EXISTS users (conversation TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (conversation, key));
CREATE TABLE IF NOT EXISTS answers (
    model TEXT NOT NULL, digest TEXT NOT NULL, token_ids BLOB NOT NULL, PRIMARY KEY (model, digest)
);
"""


@dataclass(frozen=True)
class IndexedSegment:
    """A segment as the index knows it."""

    key: str
    parent: str
    start: int
    stop: int
    token_ids: array[int]
    spans: tuple[SavedSpan, ...]
    nbytes: int


class StateIndex:
    """All calls are short transactions; safe between threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / "index.sqlite3"
        self._lock = threading.Lock()
        fresh = not self._path.exists()
        try:
            self._open()
        except sqlite3.DatabaseError:
            log.warning("the index of saved state is damaged and is built again")
            for path in folder.glob("index.sqlite3*"):
                path.unlink(missing_ok=True)
            fresh = True
            self._open()
        if fresh:
            self.rebuild()

    def _open(self) -> None:
        self._db = sqlite3.connect(self._path, timeout=10, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")  # the files are the truth; the index can be rebuilt
        self._db.executescript(_SCHEMA)
        self._db.execute("SELECT count(*) FROM segments").fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rebuild(self) -> None:
        """Read the heads of all files; unreadable ones are left out (and found by `verify`)."""
        self.adopt(sorted(self._folder.glob(f"*/*{SUFFIX}"), key=lambda p: p.stat().st_mtime))

    def claim(self, key: str, conversation: str) -> None:
        """Note whose segment is about to be written, so that it is not left ownerless when the process is killed."""
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO users VALUES (?,?)", (conversation, key))

    def adopt(self, paths: Iterable[Path]) -> None:
        """Take in whole files that were renamed by a process that was killed before it could record them."""
        for path in paths:
            if not self.has(path.name.removesuffix(SUFFIX)):
                try:
                    self.add(read_head(path), path.stat().st_size, None)
                except (BadState, OSError) as problem:
                    log.warning("saved state is left out: %s", problem)

    def add(self, head: SegmentHead, nbytes: int, conversation: str | None) -> None:
        """Record a file that has been written."""
        spans = ";".join(f"{s.start},{s.length},{s.digest}" for s in head.spans)
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO segments VALUES (?,?,?,?,?,?,?,?,?,?)",
                (
                    head.key, head.model, head.layout, head.parent, head.start, head.stop,
                    array("q", head.token_ids).tobytes(), spans, nbytes, self._next_order(db),
                ),
            )  # fmt: skip
            if conversation is not None:
                db.execute("INSERT OR IGNORE INTO users VALUES (?,?)", (conversation, head.key))
            for digest, ids in head.answers:
                db.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?,?,?)", (head.model, digest, array("q", ids).tobytes())
                )

    @staticmethod
    def _next_order(db: sqlite3.Connection) -> int:
        """A counter instead of the clock, which may be set back."""
        return db.execute("SELECT coalesce(max(use_order), 0) + 1 FROM segments").fetchone()[0]

    def children(self, model: str, layout: str, parent: str) -> list[IndexedSegment]:
        """Segments that continue `parent`."""
        with self._lock:
            rows = self._db.execute(
                "SELECT key, parent, start, stop, token_ids, spans, nbytes FROM segments"
                " WHERE model=? AND layout=? AND parent=?",
                (model, layout, parent),
            ).fetchall()
        return [_segment(row) for row in rows]

    def answer_ids(self, model: str, digest: str) -> list[int] | None:
        """Exact ids of an answer the model once wrote."""
        with self._lock:
            row = self._db.execute(
                "SELECT token_ids FROM answers WHERE model=? AND digest=?", (model, digest)
            ).fetchone()
        return None if row is None else list(array("q", row[0]))

    def touch(self, keys: list[str], conversation: str | None) -> None:
        """Mark as just used, and by whom."""
        with self._transaction() as db:
            order = self._next_order(db)
            for key in keys:
                db.execute("UPDATE segments SET use_order=? WHERE key=?", (order, key))
                if conversation is not None:
                    db.execute(
                        "INSERT OR IGNORE INTO users SELECT ?, key FROM segments WHERE key=?", (conversation, key)
                    )

    def has(self, key: str) -> bool:
        with self._lock:
            return self._db.execute("SELECT 1 FROM segments WHERE key=?", (key,)).fetchone() is not None

    def remove(self, key: str) -> None:
        """Forget a segment and all that builds on it (they could not be restored without it)."""
        with self._transaction() as db:
            for lost in self._descendants(db, key):
                db.execute("DELETE FROM segments WHERE key=?", (lost,))
                db.execute("DELETE FROM users WHERE key=?", (lost,))

    @staticmethod
    def _descendants(db: sqlite3.Connection, key: str) -> list[str]:
        found, frontier = [key], [key]
        while frontier:
            marks = ",".join("?" * len(frontier))
            frontier = [row[0] for row in db.execute(f"SELECT key FROM segments WHERE parent IN ({marks})", frontier)]
            found += frontier
        return found

    def descendants(self, key: str) -> list[str]:
        """The segment and everything that builds on it."""
        with self._lock:
            return self._descendants(self._db, key)

    def release(self, conversation: str) -> list[str]:
        """Drop a conversation; returns the keys of its segments that nobody else uses or builds on, leaves first."""
        with self._transaction() as db:
            own = [row[0] for row in db.execute("SELECT key FROM users WHERE conversation=?", (conversation,))]
            db.execute("DELETE FROM users WHERE conversation=?", (conversation,))
            order = {key: db.execute("SELECT start FROM segments WHERE key=?", (key,)).fetchone() for key in own}
            gone: list[str] = []
            for key in sorted((k for k in own if order[k]), key=lambda k: -order[k][0]):
                used = db.execute("SELECT 1 FROM users WHERE key=?", (key,)).fetchone()
                children = [r[0] for r in db.execute("SELECT key FROM segments WHERE parent=?", (key,))]
                if used is None and all(child in gone for child in children):
                    gone.append(key)
            for key in gone:
                db.execute("DELETE FROM segments WHERE key=?", (key,))
            return gone

    def total_bytes(self) -> int:
        with self._lock:
            return self._db.execute("SELECT coalesce(sum(nbytes), 0) FROM segments").fetchone()[0]

    def coldest_leaf(self, spared: set[str]) -> IndexedSegment | None:
        """The least recently used segment nobody builds on, outside of `spared`."""
        with self._lock:
            rows = self._db.execute(
                "SELECT key, parent, start, stop, token_ids, spans, nbytes FROM segments AS s WHERE NOT EXISTS"
                " (SELECT 1 FROM segments AS c WHERE c.parent = s.key) ORDER BY use_order, stop DESC"
            )
            return next((_segment(row) for row in rows if row[0] not in spared), None)

    def everything(self) -> list[tuple[str, str, int, int, int, list[str]]]:
        """(key, model, start, stop, bytes, conversations) of all segments, coldest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT key, model, start, stop, nbytes FROM segments ORDER BY use_order"
            ).fetchall()
            users = self._db.execute("SELECT key, conversation FROM users").fetchall()
        names: dict[str, list[str]] = {}
        for key, conversation in users:
            names.setdefault(key, []).append(conversation)
        return [(*row, sorted(names.get(row[0], []))) for row in rows]

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _segment(row: tuple[str, str, int, int, bytes, str, int]) -> IndexedSegment:
    spans = tuple(
        SavedSpan(int(start), int(length), digest)
        for start, length, digest in (part.split(",") for part in row[5].split(";") if part)
    )
    return IndexedSegment(row[0], row[1], row[2], row[3], array("q", row[4]), spans, row[6])
