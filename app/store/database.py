"""One SQLite connection shared by the app's threads: opening, transactions, and errors as sentences."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.refusals import StoreError
from app.store.migrations import migrate


class Database:
    """A connection with a lock around it: SQLite writes one at a time anyway, and every statement here is short."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self.num_writes = 0
        with _as_sentence():
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
            try:
                self._db.row_factory = sqlite3.Row
                self._db.create_function("holds", 2, _holds, deterministic=True)
                self._db.execute("PRAGMA journal_mode = WAL")
                # FULL: a message that was shown survives a power cut, not only a crash of the app.
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA foreign_keys = ON")
                migrate(self._db)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of its statements happen, or none."""
        with self._lock, _as_sentence():
            self._db.execute("BEGIN IMMEDIATE")
            self.num_writes += 1
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection for reading; one thread at a time."""
        with self._lock, _as_sentence():
            yield self._db

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        with self._lock:
            self._db.close()


def _holds(text: str | None, part: str) -> bool:
    """Case-insensitive search that also folds letters outside ASCII, which LIKE does not."""
    return part in (text or "").casefold()


@contextmanager
def _as_sentence() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text:
            raise StoreError("The disk is full, so the conversation cannot be saved; free some space.") from error
        if "readonly" in text or "unable to open" in text:
            raise StoreError("The conversations cannot be written: the data directory is not writable.") from error
        if "malformed" in text or "not a database" in text:
            raise StoreError("The file of conversations is damaged; choose another --data-dir to go on.") from error
        raise StoreError(f"The conversations cannot be read or written: {text}.") from error
