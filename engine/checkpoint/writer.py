"""Writes tensors to one safetensors file so that a crash leaves either the old file or the new one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import EngineError


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write beside the target, then rename. Raises EngineError when the place cannot be written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside)
        beside.replace(path)
    except (OSError, SafetensorError) as problem:
        beside.unlink(missing_ok=True)
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
        raise EngineError(f"Cannot write {path}: {reason}.") from problem
