"""One sealed piece of a conversation's KV state as a safetensors file. What is read of it is verified before anyone trusts it.

The header has a checksum of every tensor, and the file's last tensor, `seal`, is a digest of the raw header: no byte can
change unnoticed, a fault names its tensor, and one tensor can be read and trusted without the others. That is of use
where a chain of segments is read: frontiers, the state at a segment's end, are needed of the last one only.

Checksums find damage, so CRC-32 is enough (it misses no change within 32 bits, others once in 4 billion), and it takes a
third of the time of SHA-256; keys and seals say what something is and are BLAKE2.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from engine.cache.cache import FRONTIER
from engine.checkpoint.shard import Entry, Shard
from engine.errors import BadCheckpoint, BadState

FORMAT = 2
SUFFIX = ".kv"
_SEAL_BYTES = 32
_READERS = 8  # they wait for the disk together, so there may be more than processors
_BATCH_BYTES = 8 << 20  # of neighbouring tensors for one reader at a time
_BLOCK_BYTES = 256 << 10  # is still in the processor's cache when its checksum is taken


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
        for part in (FORMAT, self.model, self.layout, self.parent, self.start, self.stop, len(self.token_ids)):
            digest.update(f"{part}|".encode())
        digest.update(array("q", self.token_ids).tobytes())
        for span in self.spans:
            digest.update(f"{span.start},{span.length},{span.digest}|".encode())
        return digest.hexdigest()


def text_digest(text: str) -> str:
    """Identity of an answer's text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checksum(tensor: Tensor) -> str:
    return f"{zlib.crc32(memoryview(tensor.view(-1).view(torch.uint8).numpy())):08x}"


def _seal(header: bytes) -> bytes:
    return hashlib.blake2b(header, digest_size=_SEAL_BYTES).digest()


def write_segment(folder: Path, head: SegmentHead, tensors: Mapping[str, Tensor]) -> Path:
    """Write `folder/<key>.kv` so that it is either complete and on the disk, or not there. Raises OSError."""
    everything = {name: tensor.contiguous() for name, tensor in tensors.items()}
    checksums = json.dumps({name: _checksum(tensor) for name, tensor in everything.items()})
    metadata = {"head": json.dumps(asdict(head)), "checksums": checksums, "format": str(FORMAT)}
    path = folder / f"{head.key}{SUFFIX}"
    beside = folder / f".{head.key}.{os.getpid()}.part"
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
            file.write(_seal(header))
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
    """A verified segment. Tensors are views of the mapped file; frontiers may have been left out."""

    head: SegmentHead
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class _File:
    """A file whose header and size are in order. `entries` are its tensors without the seal, in the file's order."""

    path: Path
    head: SegmentHead
    checksums: Mapping[str, str]
    entries: tuple[Entry, ...]


def read_head(path: Path) -> SegmentHead:
    """The description only, without verifying the data; enough to rebuild an index. Raises BadState."""
    return _opened(path).head


def _opened(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            prefix = file.read(8)
            raw = prefix + file.read(min(int.from_bytes(prefix, "little"), 1 << 28))
        entries = dict(Shard(path).entries)
        metadata = json.loads(raw[8:])["__metadata__"]
        if metadata["format"] != str(FORMAT):
            raise BadState(f"{path.name} was written by another version of this program.")
        head = _head(json.loads(metadata["head"]))
        key = head.key
        checksums = {str(name): str(checksum) for name, checksum in json.loads(metadata["checksums"]).items()}
        seal = entries.pop("seal")
        end, size = max(entry.end for entry in (seal, *entries.values())), path.stat().st_size
        with path.open("rb") as file:
            file.seek(seal.begin)
            sealed = file.read(seal.nbytes)
    except BadCheckpoint as problem:
        raise BadState(f"{path.name} is damaged: {problem}") from problem
    except OSError as problem:
        raise BadState(f"{path.name} cannot be read: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise BadState(f"{path.name} is damaged: its header makes no sense.") from problem
    if sealed != _seal(raw):
        raise BadState(f"{path.name} is damaged: its seal is broken.")
    if path.name != f"{key}{SUFFIX}":
        raise BadState(f"{path.name} does not hold the state its name says.")
    if head.stop - head.start != len(head.token_ids) or entries.keys() != checksums.keys():
        raise BadState(f"{path.name} is damaged: its parts do not fit together.")
    if end != size:
        raise BadState(f"{path.name} is damaged: it has {size} bytes instead of {end}.")
    return _File(path, head, checksums, tuple(sorted(entries.values(), key=lambda entry: entry.begin)))


def _head(fields: Mapping[str, Any]) -> SegmentHead:
    return SegmentHead(
        model=fields["model"],
        layout=fields["layout"],
        parent=fields["parent"],
        start=int(fields["start"]),
        stop=int(fields["stop"]),
        token_ids=tuple(map(int, fields["token_ids"])),
        spans=tuple(SavedSpan(int(s["start"]), int(s["length"]), s["digest"]) for s in fields["spans"]),
        next_position=int(fields["next_position"]),
        answers=tuple((str(text), tuple(int(i) for i in ids)) for text, ids in fields["answers"]),
    )


def read_segment(path: Path) -> Segment:
    """Map a file and verify every byte. Raises BadState with the reason; never returns something half right."""
    (segment,) = read_chain([path])
    return segment


def read_chain(paths: Sequence[Path]) -> Iterator[Segment]:
    """The verified segments of a chain in order, frontiers with the last one only; later files are read meanwhile.

    Raises BadState with the reason in place of the first one that is not whole.
    """
    pool = ThreadPoolExecutor(_READERS, thread_name_prefix="state reader")
    try:
        begun: list[tuple[_File, list[Entry], list[Future[None]]] | BadState] = []
        for path in paths:
            try:
                file = _opened(path)
            except BadState as problem:
                begun.append(problem)
                break
            wanted = [e for e in file.entries if path is paths[-1] or not e.name.startswith(FRONTIER)]
            begun.append((file, wanted, [pool.submit(_verify, file, batch) for batch in _batches(wanted)]))
        for one in begun:
            if isinstance(one, BadState):
                raise one
            file, wanted, verified = one
            for batch in verified:
                batch.result()
            yield Segment(file.head, {entry.name: entry.view() for entry in wanted})
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    for entry in entries:
        batch.append(entry)
        if entry.end - batch[0].begin >= _BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _verify(file: _File, entries: Sequence[Entry]) -> None:
    """Read and compare. Not through the mapping: what the disk cannot give ends a process there, and is an error here."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    try:
        with file.path.open("rb", buffering=0) as source:
            for entry in entries:
                source.seek(entry.begin)
                left, checksum = entry.nbytes, 0
                while left and (count := source.readinto(block[:left])):
                    checksum = zlib.crc32(block[:count], checksum)
                    left -= count
                if left or f"{checksum:08x}" != file.checksums[entry.name]:
                    raise BadState(f"{file.path.name} is damaged: the bytes of {entry.name} have changed.")
    except OSError as problem:
        raise BadState(f"{file.path.name} cannot be read: {problem.strerror}.") from problem
