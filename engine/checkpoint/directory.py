"""A checkpoint directory: config files, the index, and every tensor by name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from engine.checkpoint.shard import Entry, Shard
from engine.errors import BadCheckpoint

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the checkpoint; raises BadCheckpoint with the reason."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadCheckpoint(f"Cannot read {path.name} in {path.parent}: {problem.strerror}.") from problem
    except (ValueError, RecursionError) as problem:
        reason = problem.msg if isinstance(problem, json.JSONDecodeError) else "its content is not readable text"
        raise BadCheckpoint(f"{path.name} in {path.parent} is not valid JSON: {reason}.") from problem
    if not isinstance(content, dict):
        raise BadCheckpoint(f"{path.name} in {path.parent} does not hold a JSON object.")
    return content


def _is_plain_name(name: str) -> bool:
    """A file name without any path in it, on every system."""
    return name == Path(name).name and name not in ("", ".", "..") and not set(name) & {"\\", "\0"} and len(name) < 256


class Checkpoint:
    """Config and tensors of one directory. Opening reads headers only."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise BadCheckpoint(f"There is no checkpoint directory {path}.")
        self.path = path
        self.config = read_json(path / "config.json")
        self.entries: dict[str, Entry] = {}
        self.shards = [Shard(path / name) for name in self._shard_names()]
        for shard in self.shards:
            for name, entry in shard.entries.items():
                if name in self.entries:
                    other = self.entries[name].shard.path.name
                    raise BadCheckpoint(
                        f"Tensor {name} is in two files, {other} and {shard.path.name}; remove the one that does not belong."
                    )
                self.entries[name] = entry
        self._check_index()

    def optional_json(self, name: str) -> dict[str, Any]:
        """Content of a JSON file that need not exist."""
        path = self.path / name
        return read_json(path) if path.exists() else {}

    def optional_text(self, name: str) -> str | None:
        path = self.path / name
        try:
            return path.read_text(encoding="utf-8") if path.exists() else None
        except (OSError, ValueError) as problem:
            raise BadCheckpoint(f"{name} in {self.path} is not readable text; download it again.") from problem

    @property
    def disk_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)

    def _shard_names(self) -> list[str]:
        if not (self.path / INDEX_FILE).exists():
            self._index: dict[str, str] | None = None
            if not (self.path / SINGLE_FILE).exists():
                raise BadCheckpoint(f"{self.path} holds neither {INDEX_FILE} nor {SINGLE_FILE}.")
            return [SINGLE_FILE]
        weight_map = read_json(self.path / INDEX_FILE).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
            raise BadCheckpoint(f"{INDEX_FILE} in {self.path} has no usable weight_map.")
        names = sorted(set(weight_map.values()))
        for name in names:
            if not _is_plain_name(name):
                raise BadCheckpoint(
                    f"{INDEX_FILE} names the file {name[:80]!r}, which lies outside the checkpoint directory."
                )
            if not (self.path / name).exists():
                raise BadCheckpoint(f"The checkpoint file {name} is missing in {self.path}; download it again.")
        self._index = weight_map
        return names

    def _check_index(self) -> None:
        if self._index is None:
            return
        for name, file in self._index.items():
            entry = self.entries.get(name)
            if entry is None or entry.shard.path.name != file:
                raise BadCheckpoint(
                    f"{INDEX_FILE} says that tensor {name} is in {file}, but it is not; download that file again."
                )

    def fingerprint(self) -> str:
        """Identity of the model: config, names, shapes and types of all tensors, and a sample of their bytes (hex)."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps(self.config, sort_keys=True).encode())
        for name in sorted(self.entries):
            entry = self.entries[name]
            digest.update(f"{name}|{entry.dtype}|{entry.shape}|".encode())
        for shard in self.shards:
            data = shard.mapped()
            step = max(shard.size_bytes // 64, 1)
            for start in range(8 + shard.header_bytes, shard.size_bytes, step):
                digest.update(data[start : start + 64])
        return digest.hexdigest()
