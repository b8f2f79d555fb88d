"""One app per data directory: a lock that the system releases when the process ends, however it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

from app.refusals import StoreError


class DirectoryLock:
    """Holds the data directory for this process from construction to `release`."""

    def __init__(self, directory: Path) -> None:
        self._file: IO[bytes] | None = (directory / "lock").open("a+b")
        try:
            _lock(self._file)
        except OSError:
            self._file.close()
            self._file = None
            raise StoreError(
                f"The app is already running on '{directory}'; close it first or choose another --data-dir."
            ) from None

    def release(self) -> None:
        """Let another instance have the directory."""
        if self._file is not None:
            self._file.close()
            self._file = None


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
