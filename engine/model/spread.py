"""Experts that do not all fit on the device: the most used are held there, the others come from RAM or the files when needed.

Few tokens multiply packed bytes: what a step needs and is not held is copied into a slot of the pool, where it stays while
it is used more than others. Many tokens need nearly every expert once: those that are not held go through two halves of a
staging buffer, one filled beside the computation while the other is converted and multiplied; the pool stays as it is.
Too little memory costs time and never changes an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from engine.memory.expert_plan import Shares
from engine.model.expert_groups import (
    ExpertShape,
    ExpertStack,
    Fp8Room,
    Group,
    Place,
    empty_stack,
    multiply_in_groups,
    write_expert,
)
from engine.model.expert_store import ExpertStore, Key, Mark, SideStream
from engine.model.experts import ExpertBank
from engine.model.workspace import wide_blocks
from kernels.experts import FEW_TOKENS, PackedExpert, mxfp4_experts

_HALF_LIFE_STEPS = 512  # after so many steps a use counts half
_COST_OF_RAM, _COST_OF_DISK = 1.0, 8.0  # of bringing an expert back, when the pool decides whom to keep
_LARGEST_GAIN = 1e100


@dataclass
class ExpertUse:
    """What steps asked for since the model was opened: experts by where they were found, each once a step and layer."""

    held: int = 0
    from_ram: int = 0
    from_disk: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of experts that needed no copy; 1 before the first step."""
        asked = self.held + self.from_ram + self.from_disk
        return self.held / asked if asked else 1.0


class ExpertPool:
    """Slots on the device that hold the experts used most, of all layers together."""

    def __init__(self, slots: int, shape: ExpertShape, layers: int, device: torch.device) -> None:
        self.stack, self.slots = empty_stack(slots, shape, device), slots
        self._slot: dict[Key, int] = {}
        self._key: list[Key | None] = [None] * slots
        self._worth = torch.full((slots,), -1.0, dtype=torch.float64)
        # Instead of letting all uses fade, every new one counts a little more than the one before.
        self._uses: dict[Key, float] = {}
        self._gain, self._growth = 1.0, 2 ** (1 / (_HALF_LIFE_STEPS * layers))

    @property
    def full(self) -> bool:
        return len(self._slot) == self.slots

    def expect(self, key: Key, weight: float) -> None:
        """Count an expert that has not been used yet as one that has."""
        self._uses[key] = weight * self._gain

    def look(self, layer: int, uses: Mapping[int, float]) -> dict[int, int]:
        """Note that experts are used now (expert -> uses times the cost of bringing it); the slots of those that are held."""
        self._gain *= self._growth
        if self._gain > _LARGEST_GAIN:
            self._uses = {key: worth / self._gain for key, worth in self._uses.items()}
            self._worth = torch.where(self._worth > 0, self._worth / self._gain, self._worth)
            self._gain = 1.0
        for e, weight in uses.items():
            self._uses[layer, e] = self._uses.get((layer, e), 0.0) + weight * self._gain
        held = {e: self._slot[layer, e] for e in uses if (layer, e) in self._slot}
        if held:
            worth = [self._uses[layer, e] for e in held]
            self._worth[list(held.values())] = torch.tensor(worth, dtype=torch.float64)
        return held

    def free(self, count: int, busy: Collection[int] = ()) -> list[int]:
        """Slots for so many others; whoever was used least gives way, but not those in `busy`."""
        assert count + len(busy) <= self.slots
        worth = self._worth.clone()
        worth[list(busy)] = inf
        slots = worth.topk(count, largest=False).indices.tolist()
        for slot in slots:
            key = self._key[slot]
            if key is not None:
                del self._slot[key]
            self._key[slot] = None
            self._worth[slot] = -1.0
        return slots

    def settle(self, key: Key, slot: int) -> None:
        """From now on, in the order of the current stream, a free slot holds this expert."""
        assert self._key[slot] is None and key not in self._slot
        self._slot[key], self._key[slot] = slot, key
        self._worth[slot] = self._uses.get(key, 0.0)


class Staging:
    """Two halves of packed experts: one is filled beside the computation while the other is used."""

    def __init__(self, group: int, shape: ExpertShape, device: torch.device) -> None:
        self._halves = [empty_stack(group, shape, device) for _ in range(2)]
        self._arrived, self._released = [Mark(device), Mark(device)], [Mark(device), Mark(device)]
        self._side = SideStream(device)
        for mark in self._released:
            mark.set()  # the memory may have had another use on this stream

    def through(self, groups: Sequence[Sequence[int]], copy: Callable[[int, Place], None]) -> Iterator[ExpertStack]:
        """One group after another in the rows of a half, which is the caller's until the next is asked for."""
        for n in range(len(groups) + 1):
            if n < len(groups):
                self._fill(n % 2, groups[n], copy)
            if n > 0:
                used = (n - 1) % 2
                self._arrived[used].let_stream_wait()
                try:
                    yield self._halves[used]
                finally:
                    self._released[used].set()

    def _fill(self, half: int, experts: Sequence[int], copy: Callable[[int, Place], None]) -> None:
        with self._side.current():
            self._released[half].let_stream_wait()
            for row, e in enumerate(experts):
                copy(e, (self._halves[half], row))
            self._arrived[half].set()


class SpreadMemory:
    """What all layers share: the pool, the store, and the buffers for many tokens."""

    def __init__(self, shares: Shares, shape: ExpertShape, device: torch.device) -> None:
        self.shares, self.shape = shares, shape
        self.pool = ExpertPool(shares.slots, shape, shares.layers, device)
        self.store = ExpertStore(shares.in_ram, shape, device)
        self.staging = Staging(shares.group, shape, device)
        self.room = Fp8Room(shares.group, shape, device)
        self.use = ExpertUse()
        self._layers = 0

    def join(self) -> int:
        """The number of one more layer."""
        self._layers += 1
        return self._layers - 1


class SpreadExperts(ExpertBank):
    """One layer's experts. Reads all of them once: RAM and device are filled, and damaged scales are found at start."""

    def __init__(
        self,
        experts: int,
        pack: Callable[[int], PackedExpert],
        release: Callable[[int], None],
        memory: SpreadMemory,
        on_bytes: Callable[[int], None],
    ) -> None:
        """pack: an expert as it lies in the mapped files; release: give its mapped bytes back to the system."""
        self.experts, self._pack, self._release, self._memory = experts, pack, release, memory
        self._layer, self.wide_blocks = memory.join(), 0
        for e in range(experts):
            expert = pack(e)
            self.wide_blocks += sum(wide_blocks(matrix) for matrix in (expert.gate, expert.up, expert.down))
            self._load(e)
            release(e)
            on_bytes(expert.nbytes)
        self.exact = self.wide_blocks == 0

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        if x.shape[0] <= FEW_TOKENS or not self.exact:
            return self._from_pool(x, ids, weights, limit)
        product = self._memory.room.product(limit)
        return multiply_in_groups(
            x, ids, weights, self.experts, self._memory.shares.group, self._through_staging, product
        )

    def _load(self, e: int) -> None:
        shares, store, pool = self._memory.shares, self._memory.store, self._memory.pool
        number = e * shares.layers + self._layer
        if number < shares.in_ram:
            store.keep((self._layer, e), lambda place: self._read(e, place))
        pool.expect((self._layer, e), self._cost(e))
        if number >= shares.count - shares.slots and not pool.full:
            self._bring({e: pool.free(1)[0]})

    def _cost(self, e: int) -> float:
        """Of bringing an expert to the device again."""
        return _COST_OF_RAM if self._memory.store.keeps((self._layer, e)) else _COST_OF_DISK

    def _read(self, e: int, place: Place) -> None:
        write_expert(self._pack(e), place)
        self._release(e)

    def _copy(self, e: int, place: Place) -> None:
        """Into a row on the device, in the order of the current stream."""
        self._memory.store.copy((self._layer, e), lambda buffer: self._read(e, buffer), place)

    # ---------------------------------------------------------------- few tokens

    def _from_pool(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        pool, chosen = self._memory.pool, ids.flatten().tolist()  # waits for the device
        uses = Counter(chosen)
        if len(uses) > pool.slots:
            return self._in_turns(x, ids, weights, limit)
        slots, missing = self._assign(uses)
        rows = torch.tensor([slots[e] for e in chosen], dtype=torch.int64, device=x.device)  # would wait for the copies
        self._bring(missing)
        return mxfp4_experts(x, rows.view(ids.shape), weights, *pool.stack, limit)

    def _in_turns(self, x: Tensor, ids: Tensor, weights: Tensor, limit: float | None) -> Tensor:
        """A step that needs more experts than there are slots. Pairs are kept in float32, as where one kernel adds them."""
        pool = self._memory.pool

        def places(groups: list[Group]) -> Iterator[tuple[Group, list[Place]]]:
            for group in groups:
                slots, missing = self._assign(group)
                self._bring(missing)
                yield group, [(pool.stack, slots[e]) for e in group]

        def product(x: Tensor, within: Tensor, share: Tensor, lying: list[Place]) -> Tensor:
            rows = torch.tensor([row for _, row in lying], device=x.device)[within]
            few = zip(*(part.split(FEW_TOKENS) for part in (x, rows, share)), strict=True)
            return torch.cat([mxfp4_experts(*each, *pool.stack, limit) for each in few])

        return multiply_in_groups(x.float(), ids, weights, self.experts, pool.slots, places, product).to(x.dtype)

    def _assign(self, uses: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        """Slots of all these experts, and of those among them that are not there yet."""
        held = self._look(uses)
        absent = [e for e in uses if e not in held]
        missing = dict(zip(absent, self._memory.pool.free(len(absent), held.values()), strict=True)) if absent else {}
        return held | missing, missing

    def _bring(self, missing: Mapping[int, int]) -> None:
        pool = self._memory.pool
        for e, slot in missing.items():
            self._copy(e, (pool.stack, slot))
            pool.settle((self._layer, e), slot)

    # ---------------------------------------------------------------- many tokens

    def _through_staging(self, groups: list[Group]) -> Iterator[tuple[Group, list[Place]]]:
        memory = self._memory
        held = self._look({e: n for group in groups for e, n in group.items()})
        absent = [[e for e in group if e not in held] for group in groups]
        # The staging comes first, so that it learns of the end of the last group.
        for half, group, missing in zip(memory.staging.through(absent, self._copy), groups, absent, strict=True):
            rows = {e: (half, row) for row, e in enumerate(missing)}
            yield group, [rows[e] if e in rows else (memory.pool.stack, held[e]) for e in group]

    def _look(self, uses: Mapping[int, int]) -> dict[int, int]:
        """The slots of experts that are held; counts and notes the use of all."""
        use, cost = self._memory.use, {e: self._cost(e) for e in uses}
        held = self._memory.pool.look(self._layer, {e: n * cost[e] for e, n in uses.items()})
        copied = [cost[e] for e in uses if e not in held]
        use.held += len(held)
        use.from_ram += copied.count(_COST_OF_RAM)
        use.from_disk += copied.count(_COST_OF_DISK)
        return held
