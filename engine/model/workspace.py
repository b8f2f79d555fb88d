"""Experts that stay packed on the device: few tokens multiply the packed bytes, many go through one shared FP8 workspace.

The workspace has two halves. While a layer multiplies from one, the next layer's experts are converted into the other
on a second stream; events guard each hand-over. Every layer reuses the same two halves, so nothing grows with depth.
Where there is no memory for two whole layers, it has room for a group of experts, and a layer goes through it in groups.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.model.expert_groups import BLOCK, ExpertShape, ExpertStack, Fp8Room, Group, Place, multiply_in_groups
from engine.model.experts import ExpertBank
from kernels.experts import FEW_TOKENS, Fp8Matrix, MxFp4Matrix, convert_mxfp4_to_fp8, fp8_experts, mxfp4_experts

EXACT_SPAN = 14  # largest log2 ratio of scales in a block that e4m3 still represents exactly


def wide_blocks(matrix: MxFp4Matrix) -> int:
    """Blocks whose group scales span more than FP8 can hold exactly; layers with such blocks are never converted."""
    scale = matrix.scale.view(torch.uint8)
    low, high = scale.aminmax()  # far quicker than block by block, and mostly enough
    if int(high) - int(low) <= EXACT_SPAN:
        return 0
    blocks = scale.unflatten(-1, (-1, BLOCK // 32))
    return int((blocks.amax(-1).int() - blocks.amin(-1).int() > EXACT_SPAN).sum())


class _Half:
    """Room for one layer's experts. `holder` is the bank whose experts it holds."""

    def __init__(self, experts: int, shape: ExpertShape, device: torch.device) -> None:
        self.room = Fp8Room(experts, shape, device)
        self.holder: WorkspaceExperts | None = None
        self.converted: torch.cuda.Event | None = None
        self.released: torch.cuda.Event | None = None

    def fill(self, bank: WorkspaceExperts) -> None:
        """Convert a bank's experts on the current stream."""
        self.holder = bank
        for matrix, target in zip(bank.packed, self.matrices(bank), strict=True):
            convert_mxfp4_to_fp8(matrix, target.codes, target.scale, BLOCK)

    def matrices(self, bank: WorkspaceExperts) -> tuple[Fp8Matrix, Fp8Matrix]:
        """This half's memory in the shapes of a bank."""
        return self.room.matrices(bank.packed, bank.experts)


class Fp8Workspace:
    """Memory that all layers share: two halves for a whole layer each, or room for a group of experts."""

    def __init__(self, device: torch.device, group: int | None = None) -> None:
        """group: experts that are converted at a time; None: whole layers."""
        self.device, self.group = device, group
        self._banks: list[WorkspaceExperts] = []
        self._halves: list[_Half] = []
        self._room: Fp8Room | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def join(self, bank: WorkspaceExperts) -> None:
        """Add a layer's bank; layers join in the order in which they run."""
        if self._banks:
            self._banks[-1].following = bank
        self._banks.append(bank)
        self._halves.clear()
        self._room = None

    @property
    def wide_blocks(self) -> int:
        """Blocks that cannot be converted exactly, in all layers."""
        return sum(bank.wide_blocks for bank in self._banks)

    @property
    def nbytes(self) -> int:
        """What has been allocated; nothing before the first product of many tokens."""
        return sum(half.room.nbytes for half in self._halves) + (self._room.nbytes if self._room else 0)

    @property
    def room(self) -> Fp8Room:
        """The room for a group of any layer's experts."""
        assert self.group is not None
        if self._room is None:
            self._room = Fp8Room(
                self.group, max((b.shape for b in self._banks), key=lambda s: s.fp8_bytes), self.device
            )
        return self._room

    def take(self, bank: WorkspaceExperts) -> _Half:
        """The half with this bank's experts, converted if they are not there; starts on the following bank's."""
        if not self._halves:
            largest = max(self._banks, key=lambda b: b.experts * b.shape.fp8_bytes)
            self._halves = [_Half(largest.experts, largest.shape, self.device) for _ in range(2)]
            for made in self._halves:
                self.release(made)  # the memory may have had another use on this stream
        half = next((h for h in self._halves if h.holder is bank), None)
        if half is None:
            half = self._halves[0]
            self._wait(half.converted)  # another layer's conversion into it may still be under way
            half.fill(bank)
        else:
            self._wait(half.converted)
        self._prefetch(self._halves[1] if half is self._halves[0] else self._halves[0], bank.following)
        return half

    def release(self, half: _Half) -> None:
        """The current stream's work so far was the last that reads this half."""
        if self._stream is not None:
            half.released = torch.cuda.Event()
            half.released.record(torch.cuda.current_stream(self.device))

    def _wait(self, event: torch.cuda.Event | None) -> None:
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def _prefetch(self, half: _Half, bank: WorkspaceExperts | None) -> None:
        if bank is None or self._stream is None or half.holder is bank or not bank.exact:
            return
        if half.released is not None:
            self._stream.wait_event(half.released)
        with torch.cuda.stream(self._stream):
            half.fill(bank)
            half.converted = torch.cuda.Event()
            half.converted.record(self._stream)


class WorkspaceExperts(ExpertBank):
    """One layer's experts, stacked and packed on the device: gate_up [E, 2I, H], down [E, H, I]."""

    def __init__(self, gate_up: MxFp4Matrix, down: MxFp4Matrix, workspace: Fp8Workspace) -> None:
        self.packed = ExpertStack(gate_up, down)
        self.experts, double_width, packed_columns = gate_up.codes.shape
        self.shape = ExpertShape(double_width // 2, 2 * packed_columns)
        self.following: WorkspaceExperts | None = None
        self.wide_blocks = sum(wide_blocks(matrix) for matrix in self.packed)
        self.exact = self.wide_blocks == 0
        self._workspace = workspace
        workspace.join(self)

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        if x.shape[0] <= FEW_TOKENS or not self.exact:
            return mxfp4_experts(x, ids, weights, *self.packed, limit)
        if self._workspace.group is not None:
            product = self._workspace.room.product(limit)
            return multiply_in_groups(x, ids, weights, self.experts, self._workspace.group, self._places, product)
        half = self._workspace.take(self)
        result = fp8_experts(x, ids, weights, *half.matrices(self), limit)
        self._workspace.release(half)
        return result

    def _places(self, groups: list[Group]) -> Iterator[tuple[Group, list[Place]]]:
        for group in groups:
            yield group, [(self.packed, e) for e in group]


def workspace_bytes(experts: int, width: int, hidden: int) -> int:
    """Both halves for layers of this size."""
    return 2 * experts * ExpertShape(width, hidden).fp8_bytes
