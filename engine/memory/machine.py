"""What this computer has. The only place that asks the system and the GPU driver about memory."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch


@dataclass(frozen=True)
class Gpu:
    """One CUDA device."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Machine:
    """Memory of a computer; tests make their own."""

    ram_total_bytes: int
    ram_available_bytes: int
    gpus: tuple[Gpu, ...] = ()


def probe_machine() -> Machine:
    """The computer this process runs on."""
    memory = psutil.virtual_memory()
    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(index)
        gpus.append(Gpu(torch.cuda.get_device_name(index), total, free))
    return Machine(memory.total, memory.available, tuple(gpus))


def process_bytes() -> int:
    """Resident memory of this process."""
    return psutil.Process().memory_info().rss
