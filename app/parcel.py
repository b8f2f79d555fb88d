"""A conversation as one zip file: what is in it, and reading one that may come from anywhere.

  conversation.json   format, version, title, settings, every message of the tree
  images/<sha256>     the original bytes of each picture
  state/<key>.kv      saved state, optional

Pictures and state are stored uncompressed, so that a file cannot unpack to more than its own size."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from app.images import MAX_FILE_BYTES, Picture, check_picture
from app.refusals import Refusal
from app.store import ReplySettings, WholeConversation, WholeMessage

FORMAT = "dayzero conversation"
VERSION = 1
MAX_JSON_BYTES = 64_000_000
MAX_ENTRIES = 100_000
_NAME = re.compile(r"conversation\.json|images/[0-9a-f]{64}|state/[0-9a-f]{40}\.kv")
_STATES = ("done", "stopped", "error", "interrupted")
_ENDINGS = ("", "stop", "length", "context_full", "cancelled")
_BIG = 1 << 62  # what SQLite can hold, with room


@dataclass(frozen=True)
class Parcel:
    """A checked parcel: nothing in it has been taken on trust but the words themselves."""

    conversation: WholeConversation
    pictures: Mapping[str, Picture]
    state_names: tuple[str, ...]


def write_parcel(
    path: Path, conversation: WholeConversation, originals: Mapping[str, Path], state_files: Sequence[Path]
) -> None:
    """Write the zip beside `path` and rename it; Refusal when that cannot be done."""
    beside: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        beside = Path(name)
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            text = json.dumps(_as_json(conversation), ensure_ascii=False, indent=1)
            archive.writestr("conversation.json", text, zipfile.ZIP_DEFLATED)
            for sha256, original in originals.items():
                archive.write(original, f"images/{sha256}")
            for one in state_files:
                archive.write(one, f"state/{one.name}")
        beside.replace(path)
    except OSError as error:
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise Refusal(f"'{path.name}' could not be written: {error.strerror or error}.") from None


def _as_json(conversation: WholeConversation) -> dict[str, Any]:
    messages = [
        {**asdict(one), "images": [{"sha256": sha256, "name": name} for sha256, name in one.images]}
        for one in conversation.messages
    ]
    return {"format": FORMAT, "version": VERSION, **asdict(conversation), "messages": messages}


def read_parcel(path: Path) -> Parcel:
    """Read and check a zip completely; Refusal with the reason if anything is not as it must be."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _entries(archive)
            conversation = _conversation(_json(archive, entries.pop("conversation.json")))
            named = {sha256: name for message in conversation.messages for sha256, name in message.images}
            kept = {name.removeprefix("images/") for name in entries if name.startswith("images/")}
            if named.keys() - kept:
                _refuse("a picture that a message shows is missing")
            if kept - named.keys():
                _refuse("it holds a picture that no message shows")
            pictures = {sha256: _picture(archive, sha256, name) for sha256, name in named.items()}
    except OSError as error:
        raise Refusal(f"'{path.name}' cannot be read: {error.strerror or error}.") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Refusal(f"'{path.name}' is not a whole zip file.") from error
    except (ValueError, OverflowError, RecursionError, RuntimeError) as error:
        raise Refusal(f"'{path.name}' is damaged and cannot be read.") from error
    state = tuple(sorted(name.removeprefix("state/") for name in entries if name.startswith("state/")))
    return Parcel(conversation, pictures, state)


def unpack_state(path: Path, parcel: Parcel, target: Path) -> list[Path]:
    """Write the parcel's state files into the folder `target`."""
    files = []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in parcel.state_names:
                files.append(target / name)
                with archive.open(f"state/{name}") as source, files[-1].open("wb") as copy:
                    while part := source.read(1 << 20):
                        copy.write(part)
    except (OSError, zipfile.BadZipFile) as error:
        raise Refusal(f"The state in '{path.name}' cannot be unpacked: {error}.") from None
    return files


def _refuse(reason: str) -> NoReturn:
    raise Refusal(f"This is not a conversation that can be imported: {reason}.")


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """All entries by name, each known, once, and no larger than it may be."""
    entries: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > MAX_ENTRIES:
        _refuse("it has too many parts")
    for entry in archive.infolist():
        if not _NAME.fullmatch(entry.filename) or entry.filename in entries:
            _refuse(f"it has an unexpected part '{entry.filename[:80]}'")
        if entry.flag_bits & 1:
            _refuse("it is encrypted")
        if entry.filename == "conversation.json":
            if entry.file_size > MAX_JSON_BYTES:
                _refuse("its text is too large")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                _refuse("its text is compressed in an unknown way")
        elif entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            _refuse(f"its part '{entry.filename}' is compressed")
        elif entry.filename.startswith("images/") and entry.file_size > MAX_FILE_BYTES:
            _refuse("one of its pictures is too large")
        entries[entry.filename] = entry
    if "conversation.json" not in entries:
        _refuse("it has no conversation.json")
    return entries


def _json(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> dict[str, Any]:
    with archive.open(entry) as file:
        content = file.read(MAX_JSON_BYTES + 1)  # the size in the directory may be a lie
    if len(content) > MAX_JSON_BYTES:
        _refuse("its text is too large")
    values = json.loads(content.decode("utf-8"), parse_constant=lambda name: _refuse(f"{name} is not a number"))
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        _refuse("it was made by another program")
    if values.get("version") != VERSION:
        _refuse("it was made by another version of this app")
    return values


def _picture(archive: zipfile.ZipFile, sha256: str, name: str) -> Picture:
    with archive.open(f"images/{sha256}") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if hashlib.sha256(content).hexdigest() != sha256:
        _refuse(f"the picture '{name[:80]}' is damaged")
    return check_picture(content, name)


# what conversation.json may say


def _conversation(values: dict[str, Any]) -> WholeConversation:
    rows = _value(values, "messages", list)
    messages: list[WholeMessage] = []
    for row in rows:
        messages.append(_message(row, messages))
    leaf = _optional(values, "leaf", int)
    leaf = len(messages) - 1 if leaf is None and messages else leaf
    if leaf is not None and not 0 <= leaf < len(messages):
        _refuse("it shows a message that is missing")
    title = " ".join(_text(values, "title").split())
    if not title:
        _refuse("it has no title")
    return WholeConversation(title, _time(values), _settings(_value(values, "settings", dict)), leaf, messages)


def _settings(values: dict[str, Any]) -> ReplySettings:
    temperature = _optional(values, "temperature", int, float)
    max_tokens, seed = _optional(values, "max_tokens", int), _optional(values, "seed", int)
    if temperature is not None and not 0 <= temperature <= 100:
        _refuse("its temperature is out of range")
    if max_tokens is not None and max_tokens < 1:
        _refuse("its longest answer is out of range")
    return ReplySettings(_text(values, "system"), temperature, max_tokens, seed, _optional(values, "thinking", bool))


def _message(values: Any, before: Sequence[WholeMessage]) -> WholeMessage:
    if not isinstance(values, dict):
        _refuse("a message is no object")
    parent = _optional(values, "parent", int)
    role = _text(values, "role")
    if role not in ("user", "assistant") or (parent is None and role != "user"):
        _refuse("a message has no valid role")
    if parent is not None and not 0 <= parent < len(before):
        _refuse("a message answers one that is missing")
    if role == "assistant" and parent is not None and before[parent].role != "user":
        _refuse("an answer does not follow a question")
    images = tuple(_image(one) for one in _value(values, "images", list))
    if images and role != "user":
        _refuse("an answer holds pictures")
    state: Any = _text(values, "state")
    state = "interrupted" if state in ("queued", "streaming") else state
    if state not in _STATES or _text(values, "finish_reason") not in _ENDINGS:
        _refuse("a message ended in an unknown way")
    return WholeMessage(
        parent=parent,
        role=role,
        text=_text(values, "text"),
        thinking=_text(values, "thinking"),
        state=state,
        finish_reason=_text(values, "finish_reason"),
        error=_text(values, "error"),
        stats=_stats(_value(values, "stats", dict)),
        created_at=_time(values),
        images=images,
    )


def _image(values: Any) -> tuple[str, str]:
    if not isinstance(values, dict) or not re.fullmatch("[0-9a-f]{64}", _text(values, "sha256")):
        _refuse("a picture has no valid name")
    return values["sha256"], _text(values, "name")


def _stats(values: dict[str, Any]) -> dict[str, Any]:
    for key, value in values.items():
        if key == "notices":
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                _refuse("a notice is no text")
            for one in value:
                _writable(one)
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _BIG:
            _refuse("a measurement is no number")
        _writable(key)
    return values


def _value(values: Mapping[str, Any], key: str, *kinds: type) -> Any:
    value = values.get(key)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        _refuse(f"'{key}' is missing or has the wrong type")
    if isinstance(value, (int, float)) and not (math.isfinite(value) and abs(value) < _BIG):
        _refuse(f"'{key}' is out of range")
    return value


def _optional(values: Mapping[str, Any], key: str, *kinds: type) -> Any:
    return None if values.get(key) is None else _value(values, key, *kinds)


def _text(values: Mapping[str, Any], key: str) -> str:
    return _writable(_value(values, key, str))


def _writable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        _refuse("it holds half a character")
    return text


def _time(values: Mapping[str, Any]) -> float:
    return float(_value(values, "created_at", int, float))
