"""Pages and rows: nothing is lost, nothing is shared, whatever conversations do; frontiers are cut exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.cache.cache import KvCache
from engine.cache.layout import CacheLayout, Frontier, Pool
from engine.cache.pages import PageAllocator

PAGES, ROWS = 12, 4
POOLS = (Pool(0, "latent", 4, 1, torch.float32), Pool(1, "entry", 2, 4, torch.bfloat16))
FLAT = CacheLayout(64, POOLS, ())
DEEP = CacheLayout(64, POOLS, (Frontier(0, "window", (8, 3), torch.float32), Frontier(1, "ring", (2,), torch.float32)))


def make(layout: CacheLayout = FLAT) -> KvCache:
    return KvCache(layout, PAGES, ROWS, torch.device("cpu"))


class CacheMachine(RuleBasedStateMachine):
    """Random conversations against a model: what each one wrote last must still be there."""

    layout = DEEP

    def __init__(self) -> None:
        super().__init__()
        self.cache = make(self.layout)
        self.live: list = []
        self.saved: dict = {}
        self.mark = 0.0

    @rule()
    def open(self) -> None:
        sequence = self.cache.open()
        assert (sequence is None) == (len(self.live) == ROWS)
        if sequence is not None:
            assert sequence.length == 0 and not sequence.pages
            assert float(self.cache.frontier(0, "window")[sequence.row].abs().max()) == 0
            self.live.append(sequence)
            self.saved[sequence] = {}

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=st.integers(1, 400))
    def append(self, data: st.DataObject, tokens: int) -> None:
        sequence = data.draw(st.sampled_from(self.live))
        before, free = list(sequence.pages), self.cache.allocator.num_free
        wanted = sequence.length + tokens
        if self.cache.reserve(sequence, wanted):
            assert len(sequence.pages) == max(-(-wanted // 64), len(before)) and sequence.pages[: len(before)] == before
            sequence.length = wanted
            self.mark += 1
            self.cache.frontier(0, "window")[sequence.row] = self.mark
            for page in sequence.pages:
                self.cache.pool(0, "latent")[page] = sequence.row
            self.saved[sequence][wanted] = (self.cache.snapshot(sequence), self.mark)
        else:
            assert sequence.pages == before and self.cache.allocator.num_free == free
            assert -(-wanted // 64) - len(before) > free

    @precondition(lambda self: any(self.saved[s] for s in self.live))
    @rule(data=st.data())
    def cut_back(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from([s for s in self.live if self.saved[s]]))
        length = data.draw(st.sampled_from(sorted(n for n in self.saved[sequence])))
        snapshot, mark = self.saved[sequence][length]
        self.cache.truncate(sequence, length, snapshot)
        assert sequence.length == length and len(sequence.pages) == -(-length // 64)
        assert bool((self.cache.frontier(0, "window")[sequence.row] == mark).all())
        self.saved[sequence] = {n: s for n, s in self.saved[sequence].items() if n <= length}

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.live))
        self.live.remove(sequence)
        del self.saved[sequence]
        self.cache.close(sequence)
        assert not sequence.pages and sequence.length == 0

    @invariant()
    def nothing_is_lost_or_overwritten(self) -> None:
        self.cache.check_integrity()
        held = sum(len(s.pages) for s in self.live)
        assert held + self.cache.allocator.num_free == PAGES
        for sequence in self.live:
            for page in sequence.pages[: -(-sequence.length // 64)]:
                assert bool((self.cache.pool(0, "latent")[page] == sequence.row).all())


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_taking_is_all_or_nothing() -> None:
    allocator = PageAllocator(3)
    assert allocator.take(4) is None and allocator.num_free == 3
    assert sorted(allocator.take(3) or []) == [0, 1, 2]
    assert allocator.take(1) is None and allocator.take(0) == []


@pytest.mark.parametrize("owned", [[[0, 1], [1]], [[0], []], [[0, 1, 2]], [[5]]])
def test_integrity_finds_lost_and_shared_pages(owned: list[list[int]]) -> None:
    allocator = PageAllocator(3)
    taken = allocator.take(2)
    allocator.check_integrity([taken or []])
    with pytest.raises(AssertionError):
        allocator.check_integrity(owned)


def test_integrity_of_the_cache_finds_a_stolen_page() -> None:
    cache = make()
    one, two = cache.open(), cache.open()
    assert one is not None and two is not None
    cache.reserve(one, 100)
    cache.check_integrity()
    two.pages = [one.pages[0]]
    with pytest.raises(AssertionError, match="page"):
        cache.check_integrity()
    two.pages = []
    two.row = one.row
    with pytest.raises(AssertionError, match="row"):
        cache.check_integrity()


def test_cutting_with_frontiers_needs_the_right_snapshot() -> None:
    cache = make(DEEP)
    sequence = cache.open()
    assert sequence is not None and cache.reserve(sequence, 200)
    sequence.length = 100
    snapshot = cache.snapshot(sequence)
    sequence.length = 200
    for tokens, chosen in ((100, None), (150, snapshot)):
        with pytest.raises(AssertionError):
            cache.truncate(sequence, tokens, chosen)
    cache.truncate(sequence, 100, snapshot)
    cache.truncate(sequence, 0)
    assert sequence.pages == []


def test_a_snapshot_is_a_copy() -> None:
    cache = make(DEEP)
    sequence = cache.open()
    assert sequence is not None
    snapshot = cache.snapshot(sequence)
    cache.frontier(0, "window")[sequence.row] = 5
    assert float(snapshot.frontiers[0].abs().max()) == 0


def test_the_layout_counts_every_byte() -> None:
    cache = make(DEEP)
    pools = sum(cache.pool(p.layer, p.name).nbytes for p in POOLS)
    assert pools == PAGES * DEEP.page_bytes == PAGES * (64 * 4 * 4 + 16 * 2 * 2)
    frontiers = sum(cache.frontier(f.layer, f.name).nbytes for f in DEEP.frontiers)
    assert frontiers == ROWS * DEEP.bytes_per_conversation
    assert FLAT.rewindable and not DEEP.rewindable
    assert cache.capacity_tokens == PAGES * 64
