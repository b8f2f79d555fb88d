"""Export and import of conversations: between the store, saved state and a zip file. Knows no page and no terminal."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from app.parcel import read_parcel, unpack_state, write_parcel
from app.refusals import Refusal
from app.settings import state_dir
from app.store import TRANSFER_PREFIX, Conversation, Store
from engine.errors import EngineError


def export_conversation(store: Store, conversation_id: str, path: Path, with_state: bool = False) -> None:
    """Write a conversation with its pictures, and if wished its saved state, into one zip file."""
    whole = store.whole(conversation_id)
    hashes = {sha256 for message in whole.messages for sha256, _ in message.images}
    originals = {sha256: store.files.original(sha256) for sha256 in sorted(hashes)}
    with tempfile.TemporaryDirectory(dir=store.directory, prefix=TRANSFER_PREFIX) as folder:
        state_files: list[Path] = []
        if with_state and state_dir(store.directory).is_dir():
            from engine.api import export_saved

            state_files = export_saved(state_dir(store.directory), conversation_id, Path(folder))
        write_parcel(path, whole, originals, state_files)


def import_conversation(store: Store, path: Path) -> Conversation:
    """Take over a conversation from a zip file under a new identity. A Refusal leaves everything as it was."""
    parcel = read_parcel(path)
    with tempfile.TemporaryDirectory(dir=store.directory, prefix=TRANSFER_PREFIX) as folder:
        files = unpack_state(path, parcel, Path(folder)) if parcel.state_names else []
        conversation = store.add_whole(parcel.conversation, parcel.pictures)
        if files:
            from engine.api import import_saved

            try:
                import_saved(state_dir(store.directory), files, conversation.id)
            except EngineError as error:
                store.delete(conversation.id)
                raise Refusal(f"The saved state in '{path.name}' cannot be taken over: {error}") from None
            except BaseException:
                store.delete(conversation.id)
                raise
    return conversation


def file_name(title: str) -> str:
    """A file name for the export of a conversation of this title, safe on every system."""
    return re.sub(r"[^\w -]+", "", title).strip(" .")[:60].strip() or "conversation"
