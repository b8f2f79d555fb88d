"""Where packed experts come from when the device does not hold them: RAM, pinned for a GPU, or the mapped checkpoint files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from engine.model.expert_groups import ExpertShape, ExpertStack, Place, copy_expert, stack_over

log = logging.getLogger(__name__)
_SLAB_BYTES = 1 << 30
Key = tuple[int, int]  # (number of the layer among those with experts, expert)


def slabs_for(experts: int, shape: ExpertShape) -> tuple[int, int, int]:
    """Number of slabs that hold so many experts, experts of a slab, bytes of a slab.

    A power of two, because torch rounds pinned memory up to one.
    """
    wanted = max(min(experts * shape.packed_bytes, _SLAB_BYTES), shape.packed_bytes, 1)
    slab = 1 << (wanted - 1).bit_length()
    each = slab // shape.packed_bytes
    return -(-experts // each), each, slab


def bounce_bytes(shape: ExpertShape) -> int:
    """Bytes of the two buffers through which mapped experts go."""
    return 1 << (2 * shape.packed_bytes - 1).bit_length()


class Mark:
    """A point in the current stream's work, for others to wait for. Where there are no streams all work is done at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: torch.cuda.Event | None = None

    def set(self) -> None:
        """Here: after everything that the current stream was given so far."""
        if self._device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(self._device))

    def let_stream_wait(self) -> None:
        """What the current stream is given from now on runs after the mark."""
        if self._event is not None:
            torch.cuda.current_stream(self._device).wait_event(self._event)

    def wait(self) -> None:
        """Return when the mark has been passed."""
        if self._event is not None:
            self._event.synchronize()


class SideStream:
    """A second stream of the device, for work beside the current one's."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def current(self) -> AbstractContextManager[object]:
        """Inside the block, work goes to this stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


class HostMemory:
    """Allocates RAM, pinned if a GPU is to copy from it; ordinary memory from the first time the system refuses."""

    def __init__(self, device: torch.device) -> None:
        self._pin = device.type == "cuda"

    def allocate(self, nbytes: int) -> Tensor:
        """uint8 [nbytes], not initialised."""
        if self._pin:
            try:
                return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                self._pin = False
                log.warning("RAM cannot be pinned any further, so copies of experts to the GPU are slower: %s", error)
        return torch.empty(nbytes, dtype=torch.uint8)


class ExpertStore:
    """All experts of all layers that were given to it: some kept in RAM, the others read from the files every time."""

    def __init__(self, in_ram: int, shape: ExpertShape, device: torch.device) -> None:
        """in_ram: how many experts will be kept in RAM."""
        self.shape, self._device, self._memory = shape, device, HostMemory(device)
        self._per_slab, self._slab_bytes = slabs_for(in_ram, shape)[1:]
        self._slabs: list[ExpertStack] = []
        self._kept: dict[Key, Place] = {}
        self._bounce: list[tuple[Place, Mark]] = []
        self._turn = 0
        self.nbytes = 0

    def keep(self, key: Key, read: Callable[[Place], None]) -> None:
        """Keep an expert in RAM; `read` writes it to the place it is given."""
        slab, row = divmod(len(self._kept), self._per_slab)
        if slab == len(self._slabs):
            self._slabs.append(self._allocate(self._slab_bytes, self._per_slab))
        read((self._slabs[slab], row))
        self._kept[key] = self._slabs[slab], row

    def keeps(self, key: Key) -> bool:
        """Whether an expert is in RAM."""
        return key in self._kept

    def copy(self, key: Key, read: Callable[[Place], None], target: Place) -> None:
        """Give the current stream the copy of an expert to the device; one that is not in RAM is read now."""
        kept = self._kept.get(key)
        if kept is not None:
            copy_expert(kept, target)
            return
        if not self._bounce:
            stack = self._allocate(bounce_bytes(self.shape), 2)
            self._bounce = [((stack, row), Mark(self._device)) for row in range(2)]
        place, copied = self._bounce[self._turn]
        self._turn = 1 - self._turn
        copied.wait()
        read(place)
        copy_expert(place, target)
        copied.set()

    def _allocate(self, nbytes: int, rows: int) -> ExpertStack:
        self.nbytes += nbytes
        return stack_over(self._memory.allocate(nbytes), rows, self.shape)
