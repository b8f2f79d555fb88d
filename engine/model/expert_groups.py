"""Packed experts in rows of stacks, and many tokens through a small FP8 workspace: a layer's experts in use, group after group.

The result is that of one product over all experts, bit for bit: every (token, choice) pair gives a row of its own, and a
token's rows are added at the end in the order of its choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.experts import Fp8Matrix, MxFp4Matrix, PackedExpert, convert_mxfp4_to_fp8, fp8_experts

BLOCK = 128  # columns that share one scale in FP8


class ExpertShape(NamedTuple):
    """Sizes of one expert: gate and up [width, hidden], down [hidden, width]."""

    width: int
    hidden: int

    @property
    def packed_bytes(self) -> int:
        """As MXFP4: half a byte a value, one byte of scale per 32."""
        return 3 * self.width * self.hidden * 17 // 32

    @property
    def fp8_bytes(self) -> int:
        """As e4m3 with one byte of scale per 128 columns."""
        return 3 * self.width * self.hidden * (BLOCK + 1) // BLOCK


class ExpertStack(NamedTuple):
    """Packed experts in R rows: gate_up [R, 2I, H], down [R, H, I]."""

    gate_up: MxFp4Matrix
    down: MxFp4Matrix

    def rows(self, first: int, count: int) -> ExpertStack:
        return ExpertStack(*(MxFp4Matrix(*(part[first : first + count] for part in matrix)) for matrix in self))


Place = tuple[ExpertStack, int]  # a row of a stack


def empty_stack(rows: int, shape: ExpertShape, device: torch.device) -> ExpertStack:
    """Room for packed experts."""
    return stack_over(torch.empty(rows * shape.packed_bytes, dtype=torch.uint8, device=device), rows, shape)


def stack_over(memory: Tensor, rows: int, shape: ExpertShape) -> ExpertStack:
    """A stack in the first bytes of uint8 memory [>= rows * packed_bytes]."""
    width, hidden = shape
    sizes = [(2 * width, hidden // 2), (2 * width, hidden // 32), (hidden, width // 2), (hidden, width // 32)]
    parts, begin = [], 0
    for size in sizes:
        end = begin + rows * size[0] * size[1]
        parts.append(memory[begin:end].view(rows, *size))
        begin = end
    return ExpertStack(MxFp4Matrix(*parts[:2]), MxFp4Matrix(*parts[2:]))


def write_expert(expert: PackedExpert, place: Place) -> None:
    """Copy one expert, as it lies in a file, into a row."""
    (gate_up, down), row = place
    width = expert.gate.codes.shape[0]
    for whole, gate, up in zip(gate_up, expert.gate, expert.up, strict=True):
        whole[row, :width].copy_(gate)
        whole[row, width:].copy_(up)
    for whole, part in zip(down, expert.down, strict=True):
        whole[row].copy_(part)


def copy_expert(source: Place, target: Place) -> None:
    """Copy a row to a row; from pinned memory to a GPU in the order of the current stream, without waiting."""
    for from_matrix, to_matrix in zip(source[0], target[0], strict=True):
        for from_part, to_part in zip(from_matrix, to_matrix, strict=True):
            to_part[target[1]].copy_(from_part[source[1]], non_blocking=True)


class Fp8Room:
    """Memory for experts in FP8, in whatever shape they are; a shape's experts must not need more than was asked for."""

    def __init__(self, experts: int, shape: ExpertShape, device: torch.device) -> None:
        sizes = [experts * factor * shape.width * shape.hidden for factor in (2, 1)]
        self._codes = [torch.empty(size, dtype=torch.float8_e4m3fn, device=device) for size in sizes]
        self._scale = [torch.empty(size // BLOCK, dtype=torch.uint8, device=device) for size in sizes]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (*self._codes, *self._scale))

    def matrices(self, stack: ExpertStack, experts: int) -> tuple[Fp8Matrix, Fp8Matrix]:
        """The memory as gate_up and down of so many experts shaped as those of a stack."""
        made = []
        for matrix, codes, scale in zip(stack, self._codes, self._scale, strict=True):
            rows, columns = matrix.codes.shape[1], 2 * matrix.codes.shape[2]
            size = experts * rows * columns
            blocks = scale[: size // BLOCK].view(experts, rows, columns // BLOCK)
            made.append(Fp8Matrix(codes[:size].view(experts, rows, columns), blocks))
        return made[0], made[1]

    def fill(self, places: Sequence[Place]) -> tuple[Fp8Matrix, Fp8Matrix]:
        """Convert the packed experts at these places, in this order, neighbours in one call."""
        made = self.matrices(places[0][0], len(places))
        for begin, end in pairwise(_runs(places)):
            stack, first = places[begin]
            for source, target in zip(stack.rows(first, end - begin), made, strict=True):
                convert_mxfp4_to_fp8(source, target.codes[begin:end], target.scale[begin:end], BLOCK)
        return made

    def product(self, limit: float | None) -> Callable[[Tensor, Tensor, Tensor, list[Place]], Tensor]:
        """For `multiply_in_groups`: convert, then multiply in FP8."""
        return lambda x, ids, weights, places: fp8_experts(x, ids, weights, *self.fill(places), limit)


def _runs(places: Sequence[Place]) -> list[int]:
    """Where rows of another stack, or rows further on, begin; and the end."""
    breaks = [
        n
        for n, ((stack, row), (following, next_row)) in enumerate(pairwise(places), start=1)
        if following is not stack or next_row != row + 1
    ]
    return [0, *breaks, len(places)]


Group = dict[int, int]  # expert -> how many pairs chose it


def multiply_in_groups(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    experts: int,
    size: int,
    places: Callable[[list[Group]], Iterator[tuple[Group, list[Place]]]],
    product: Callable[[Tensor, Tensor, Tensor, list[Place]], Tensor],
) -> Tensor:
    """One of a layer's few-at-a-time products: x [N, H], ids int64 [N, k], weights float32 [N, k] -> [N, H].

    The experts in use are cut into groups of `size`, in their order. `places(groups)` yields each group with the rows
    where its experts lie until the next is asked for; `product(x [p, H], ids [p, 1], weights [p, 1], places)` -> [p, H]
    multiplies pairs, whose ids count within the group.
    Waits for the device once: which experts are in use decides what is copied and launched.
    """
    flat, choices = ids.flatten(), ids.shape[1]
    order = flat.argsort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=ids.device).scatter_add_(0, flat, torch.ones_like(flat))
    within = ((counts > 0).cumsum(0) - 1)[flat[order]].remainder(size).unsqueeze(1)
    token, share = order // choices, weights.flatten()[order].unsqueeze(1)
    used = [(e, n) for e, n in enumerate(counts.tolist()) if n]
    groups = [dict(used[first : first + size]) for first in range(0, len(used), size)]
    parts = x.new_empty(len(flat), x.shape[1])
    begin = 0
    for group, lying in places(groups):
        pairs = slice(begin, begin + sum(group.values()))
        parts.index_copy_(0, order[pairs], product(x[token[pairs]], within[pairs], share[pairs], lying))
        begin = pairs.stop
    return _add_choices(parts.unflatten(0, ids.shape))


def _add_choices(parts: Tensor) -> Tensor:
    """[N, k, H] -> [N, H], one choice after another in at least float32, as the kernels add them."""
    total = parts[:, 0].to(torch.promote_types(parts.dtype, torch.float32))
    for choice in parts.unbind(1)[1:]:
        total = total + choice
    return total.to(parts.dtype)
