"""One safetensors file, mapped into memory. Knows bytes and headers, not models.

Format: 8 bytes little-endian header length, JSON header {name: {dtype, shape, data_offsets}}, data.
The project reads it itself, because it must hand out mapped ranges and give their memory back to the system.
"""

from __future__ import annotations

import json
import math
import mmap
import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import BadCheckpoint

_MAX_HEADER_BYTES = 512 << 20
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
# The mapping is read-only on purpose; nobody writes into these tensors.
warnings.filterwarnings("ignore", message="The given buffer is not writable")


@dataclass(frozen=True)
class Entry:
    """One tensor of a shard as the header describes it; `begin` and `end` are byte offsets in the file."""

    name: str
    shard: Shard
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    def view(self) -> Tensor:
        """The stored tensor, a read-only view of the mapped file."""
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(self.shard.mapped(), dtype=torch.uint8, count=self.nbytes, offset=self.begin)
        if self.begin % max(self.dtype.itemsize, 1):  # torch wants aligned storage; the format does not promise it
            flat = flat.clone()
        return flat.view(self.dtype).view(self.shape)

    def release(self) -> None:
        """Tell the system that the mapped bytes are not needed any more; they can be read again later."""
        self.shard.release(self.begin, self.end)

    def __str__(self) -> str:
        return f"tensor {self.name} in {self.shard.path.name}"


class Shard:
    """An opened file; the header is read and checked at once, data only when a view is touched."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        try:
            self.size_bytes = path.stat().st_size
            with path.open("rb") as file:
                self.header_bytes, header = _read_header(path, file.read(8), file.read, self.size_bytes)
        except OSError as problem:
            raise BadCheckpoint(f"Cannot read the checkpoint file {path.name}: {problem.strerror}.") from problem
        self.entries = {name: self._entry(name, value) for name, value in header.items() if name != "__metadata__"}
        self._refuse_overlaps()

    def _entry(self, name: str, value: Any) -> Entry:
        try:
            dtype, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
        except (KeyError, TypeError, ValueError) as problem:
            raise BadCheckpoint(
                f"The header of {self.path.name} does not describe tensor {name} properly."
            ) from problem
        if any(type(n) is not int for n in (*shape, begin, end)):
            raise BadCheckpoint(f"The header of {self.path.name} gives tensor {name} sizes that are not whole numbers.")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise BadCheckpoint(f"Tensor {name} in {self.path.name} has the unknown element type {dtype!r}.")
        size = math.prod(shape) * DTYPES[dtype].itemsize
        if begin < 0 or end - begin != size or min(shape, default=0) < 0:
            raise BadCheckpoint(
                f"The header of {self.path.name} gives tensor {name} a size that contradicts its shape."
            )
        start = 8 + self.header_bytes
        if start + end > self.size_bytes:
            raise BadCheckpoint(
                f"The checkpoint file {self.path.name} is cut off: tensor {name} ends behind the end of the file; "
                "download this file again."
            )
        return Entry(name, self, DTYPES[dtype], shape, start + begin, start + end)

    def _refuse_overlaps(self) -> None:
        """Two tensors never share bytes; a header that says so is damaged."""
        entries = sorted((e for e in self.entries.values() if e.nbytes), key=lambda e: e.begin)
        for one, two in pairwise(entries):
            if two.begin < one.end:
                raise BadCheckpoint(
                    f"The header of {self.path.name} is damaged: tensors {one.name} and {two.name} share bytes; "
                    "download the file again."
                )

    def mapped(self) -> mmap.mmap:
        """The whole file as a read-only buffer, mapped on first use."""
        if self._map is None:
            with self.path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map

    def release(self, begin: int, end: int) -> None:
        """Drop the pages that lie wholly inside the range from this process."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            page = mmap.PAGESIZE
            first, last = -(-begin // page) * page, end // page * page
            if last > first:
                self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _read_header(path: Path, prefix: bytes, read: Any, size_bytes: int) -> tuple[int, dict[str, Any]]:
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > min(_MAX_HEADER_BYTES, size_bytes - 8):
        raise BadCheckpoint(f"{path.name} is not a whole safetensors file; download it again.")
    try:
        header = json.loads(read(length), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as problem:
        raise BadCheckpoint(f"The header of {path.name} is damaged; download the file again.") from problem
    if not isinstance(header, dict):
        raise BadCheckpoint(f"The header of {path.name} is damaged; download the file again.")
    return length, header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice")
    return content
