"""One sealed piece of a conversation's KV state as a safetensors file. Verified completely before anyone trusts it.

The file's last tensor, `seal`, is a digest over the raw header and the digest of every other tensor, and each
tensor's own digest stands in the metadata. So no byte of the file can change unnoticed, and a fault names its tensor.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from engine.checkpoint.shard import Entry, Shard
from engine.errors import BadCheckpoint, BadState

FORMAT = 1
SUFFIX = ".kv"
_SEAL_BYTES = 32
_PARALLEL_BYTES = 4 << 20  # less is hashed sooner than threads are started


@dataclass(frozen=True)
class SavedSpan:
    """A picture inside the tokens up to the end of a segment."""

    start: int
    length: int
    digest: str


@dataclass(frozen=True)
class SegmentHead:
    """What a segment is. `start` and `stop` count tokens of the conversation; `token_ids` are those in between."""

    model: str  # fingerprint of the checkpoint
    layout: str  # cache layout, see `layout_name`
    parent: str  # key of the segment before, "" for the first
    start: int
    stop: int
    token_ids: tuple[int, ...]
    spans: tuple[SavedSpan, ...]  # pictures that begin in this segment
    next_position: int  # rope position of the token behind `stop`
    answers: tuple[tuple[str, tuple[int, ...]], ...] = ()  # digest of an answer's text, its exact ids

    @property
    def key(self) -> str:
        """Content identity: equal keys mean equal state."""
        digest = hashlib.blake2b(digest_size=20)
        for part in (FORMAT, self.model, self.layout, self.parent, self.start, self.stop, self.token_ids):
            digest.update(f"{part}|".encode())
        for span in self.spans:
            digest.update(f"{span.start},{span.length},{span.digest}|".encode())
        return digest.hexdigest()


def text_digest(text: str) -> str:
    """Identity of an answer's text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest(tensor: Tensor) -> str:
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(memoryview(flat.numpy())).hexdigest()  # processors have instructions for this one


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Digests of all tensors, several at once: hashing (and the disk reads it causes) runs outside of Python's lock."""
    if sum(t.nbytes for t in tensors.values()) < _PARALLEL_BYTES:
        return {name: _digest(tensor) for name, tensor in tensors.items()}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(tensors, pool.map(_digest, tensors.values()), strict=True))


def _seal(header: bytes, digests: Mapping[str, str]) -> bytes:
    seal = hashlib.blake2b(header, digest_size=_SEAL_BYTES)
    for name in sorted(digests):
        seal.update(f"{name}={digests[name]}|".encode())
    return seal.digest()


def write_segment(folder: Path, head: SegmentHead, tensors: Mapping[str, Tensor]) -> Path:
    """Write `folder/<key>.kv` so that it is either complete and on the disk, or not there. Raises OSError."""
    digests = _digests(tensors)
    metadata = {"head": json.dumps(asdict(head)), "digests": json.dumps(digests), "format": str(FORMAT)}
    path = folder / f"{head.key}{SUFFIX}"
    beside = folder / f".{head.key}.{os.getpid()}.part"
    everything = {name: tensor.contiguous() for name, tensor in tensors.items()}
    everything["seal"] = torch.zeros(_SEAL_BYTES, dtype=torch.uint8)
    try:
        try:
            save_file(everything, beside, metadata)
        except SafetensorError as problem:  # the library reports a full disk in its own class
            raise OSError(str(problem)) from problem
        with beside.open("r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            header = length.to_bytes(8, "little") + file.read(length)
            begin = json.loads(header[8:])["seal"]["data_offsets"][0]
            file.seek(8 + length + begin)
            file.write(_seal(header, digests))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(folder)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return path


def sync_folder(folder: Path) -> None:
    """Make a rename durable where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Segment:
    """A verified segment. Tensors are views of the mapped file."""

    head: SegmentHead
    tensors: Mapping[str, Tensor]


def read_head(path: Path) -> SegmentHead:
    """The description only, without verifying the data; enough to rebuild an index. Raises BadState."""
    return _opened(path)[0]


def _opened(path: Path) -> tuple[SegmentHead, dict[str, str], dict[str, Entry], bytes]:
    """Head, digests, entries and raw header of a file that looks whole."""
    try:
        with path.open("rb") as file:
            prefix = file.read(8)
            raw = prefix + file.read(min(int.from_bytes(prefix, "little"), 1 << 28))
        shard = Shard(path)
        metadata = json.loads(raw[8:])["__metadata__"]
        if metadata["format"] != str(FORMAT):
            raise BadState(f"{path.name} was written by another version of this program.")
        fields = json.loads(metadata["head"])
        head = SegmentHead(
            model=fields["model"],
            layout=fields["layout"],
            parent=fields["parent"],
            start=int(fields["start"]),
            stop=int(fields["stop"]),
            token_ids=tuple(int(i) for i in fields["token_ids"]),
            spans=tuple(SavedSpan(int(s["start"]), int(s["length"]), s["digest"]) for s in fields["spans"]),
            next_position=int(fields["next_position"]),
            answers=tuple((str(text), tuple(int(i) for i in ids)) for text, ids in fields["answers"]),
        )
        digests = {str(name): str(digest) for name, digest in json.loads(metadata["digests"]).items()}
    except BadCheckpoint as problem:
        raise BadState(f"{path.name} is damaged: {problem}") from problem
    except OSError as problem:
        raise BadState(f"{path.name} cannot be read: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BadState(f"{path.name} is damaged: its header makes no sense.") from problem
    return head, digests, shard.entries, raw


def read_segment(path: Path) -> Segment:
    """Map and verify every byte. Raises BadState with the reason; never returns something half right."""
    head, digests, entries, raw = _opened(path)
    if path.name != f"{head.key}{SUFFIX}":
        raise BadState(f"{path.name} does not hold the state its name says.")
    if head.stop - head.start != len(head.token_ids) or set(entries) != {*digests, "seal"}:
        raise BadState(f"{path.name} is damaged: its parts do not fit together.")
    end = max(entry.end for entry in entries.values())
    if end != path.stat().st_size:
        raise BadState(f"{path.name} is damaged: it has {path.stat().st_size} bytes instead of {end}.")
    tensors = {name: entry.view() for name, entry in entries.items()}
    seal = bytes(tensors.pop("seal").tolist())
    for name, digest in _digests(tensors).items():
        if digest != digests[name]:
            raise BadState(f"{path.name} is damaged: the bytes of {name} have changed.")
    if seal != _seal(raw, digests):
        raise BadState(f"{path.name} is damaged: its seal is broken.")
    return Segment(head, tensors)
