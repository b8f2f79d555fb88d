"""Where a layer's routed experts live and how they are multiplied. Answers are the same for every bank; speed is not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kernels.experts import PackedExpert, dense_experts, grouped_experts, packed_experts


class ExpertBank(Protocol):
    """The experts of one layer. x [N, H], ids int64 [N, k], weights float32 [N, k] -> [N, H]."""

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor: ...


class DecodedExperts(ExpertBank):
    """All experts decoded in memory: gate_up [E, 2I, H] (gate rows first), down [E, H, I], in the compute dtype."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        self.gate_up, self.down = gate_up, down

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        return dense_experts(x, ids, weights, self.gate_up, self.down, limit)


@dataclass(frozen=True)
class DecodedExpert:
    """One expert ready to multiply: gate_up [2I, H], down [H, I]."""

    gate_up: Tensor
    down: Tensor

    @property
    def nbytes(self) -> int:
        return self.gate_up.nbytes + self.down.nbytes


class ExpertCache:
    """Recently used decoded experts of all layers within one byte budget, which is never exceeded."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes, self.used_bytes = budget_bytes, 0
        self.hits = self.misses = 0
        self._items: OrderedDict[tuple[int, int], DecodedExpert] = OrderedDict()

    def get(self, key: tuple[int, int], decode: Callable[[], DecodedExpert]) -> DecodedExpert:
        """The expert under (layer, expert), decoded now if it is not held."""
        held = self._items.get(key)
        if held is not None:
            self.hits += 1
            self._items.move_to_end(key)
            return held
        self.misses += 1
        fresh = decode()
        if fresh.nbytes <= self.budget_bytes:
            while self.used_bytes + fresh.nbytes > self.budget_bytes:
                self.used_bytes -= self._items.popitem(last=False)[1].nbytes
            self._items[key] = fresh
            self.used_bytes += fresh.nbytes
        return fresh


class MappedExperts(ExpertBank):
    """Experts as they lie in the checkpoint files (mapped, not copied), decoded when a token needs them."""

    def __init__(self, layer: int, decode: Callable[[int], DecodedExpert], cache: ExpertCache) -> None:
        self._layer, self._decode, self._cache = layer, decode, cache

    def _expert(self, e: int) -> DecodedExpert:
        return self._cache.get((self._layer, e), lambda: self._decode(e))

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        return grouped_experts(x, ids, weights, limit, self._expert_matrices)

    def _expert_matrices(self, e: int) -> tuple[Tensor, Tensor]:
        expert = self._expert(e)
        return expert.gate_up, expert.down


class PackedExperts(ExpertBank):
    """Experts multiplied straight from their packed bytes, mapped or in memory; nothing is decoded ahead of time."""

    def __init__(self, pack: Callable[[int], PackedExpert]) -> None:
        self._pack = pack
        self._held: dict[int, PackedExpert] = {}

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        return packed_experts(x, ids, weights, self._expert, limit)

    def read_all(self, experts: int, on_bytes: Callable[[int], None]) -> None:
        """Check the scales of all experts now, so that a damaged file is found at start."""
        for e in range(experts):
            on_bytes(self._expert(e).nbytes)

    def _expert(self, e: int) -> PackedExpert:
        held = self._held.get(e)
        if held is None:
            held = self._held[e] = self._pack(e)
        return held


def stack_experts(experts: int, decode: Callable[[int], DecodedExpert], dtype: torch.dtype) -> DecodedExperts:
    """Decode all experts one after another into two preallocated stacks, so the peak is the result plus one expert."""
    first = decode(0)
    gate_up = torch.empty((experts, *first.gate_up.shape), dtype=dtype, device=first.gate_up.device)
    down = torch.empty((experts, *first.down.shape), dtype=dtype, device=first.down.device)
    for e in range(experts):
        expert = first if e == 0 else decode(e)
        gate_up[e], down[e] = expert.gate_up, expert.down
    return DecodedExperts(gate_up, down)
