"""Picture files beside the database, named by the hash of their content. Knows files, not messages."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from app.refusals import StoreError


class AttachmentFiles:
    """Originals and previews in private directories; writing the same content twice keeps one file."""

    def __init__(self, directory: Path) -> None:
        self.originals_dir = directory / "pictures"
        self.previews_dir = directory / "previews"
        for place in (self.originals_dir, self.previews_dir):
            make_private(place)
            for leftover in place.glob("*.part"):
                leftover.unlink(missing_ok=True)

    def original(self, sha256: str) -> Path:
        """Path of the original bytes."""
        return self.originals_dir / sha256

    def preview(self, sha256: str) -> Path:
        """Path of the small WebP preview."""
        return self.previews_dir / f"{sha256}.webp"

    def keep(self, sha256: str, content: bytes, preview: bytes) -> None:
        """Write both files so that a crash leaves a whole file or none."""
        _write(self.original(sha256), content)
        _write(self.preview(sha256), preview)

    def drop(self, hashes: Iterable[str]) -> None:
        """Remove files that no message names any more."""
        for sha256 in hashes:
            with contextlib.suppress(OSError):
                self.original(sha256).unlink(missing_ok=True)
                self.preview(sha256).unlink(missing_ok=True)


def make_private(directory: Path) -> None:
    """Create the directory for this person only."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
    except OSError as error:
        raise StoreError(f"The directory '{directory}' cannot be used: {error.strerror or error}.") from None


def _write(path: Path, content: bytes) -> None:
    if path.exists() and path.stat().st_size == len(content):
        return
    temp: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        temp = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        if temp is not None:
            temp.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError("The disk is full, so the picture cannot be saved; free some space.") from None
        raise StoreError(f"The picture cannot be saved: {error.strerror or error}.") from None


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable where the system allows opening a directory."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
