"""What a restore reads of a chain of segments, what it verifies, and how it gets into the cache."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.api import BadState, verify_saved
from engine.cache import cache as cache_room
from engine.cache.cache import CachedSequence, KvCache
from engine.cache.layout import CacheLayout, Frontier, Pool
from engine.chat.prompt import layout_prompt
from engine.state import segment as segment_room
from engine.state.segment import SegmentHead, read_chain, read_segment, write_segment
from engine.state.store import StateStore
from kernels.cache_rows import ENTRY, ENTRY_BYTES

MODEL, PROMPT = "0123456789abcdef", layout_prompt(list(range(80)), [], None)
FIRST = SegmentHead(MODEL, "exact", "", 0, 20, tuple(range(20)), (), 20)
SECOND = SegmentHead(MODEL, "exact", FIRST.key, 20, 40, tuple(range(20, 40)), (), 40)
THIRD = SegmentHead(MODEL, "exact", SECOND.key, 40, 60, tuple(range(40, 60)), (), 60)
CHAIN = (FIRST, SECOND, THIRD)


def tensors(number: int) -> dict[str, Tensor]:
    return {"0.entry": torch.full((20, 8), float(number)), "frontier.0.window": torch.full((4, 8), 0.5 + number)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    made = StateStore(tmp_path, MODEL, "exact", cut_anywhere=False, budget_bytes=1 << 30)
    for number, head in enumerate(CHAIN):
        made.seal("c", head, lambda n=number: tensors(n))
    made.flush()
    yield made
    made.close()


def damage(store: StateStore, head: SegmentHead, name: str) -> None:
    """Change one byte of a tensor in a file."""
    path = store._path(head.key)
    entry = next(e for e in segment_room._opened(path).entries if e.name == name)
    data = bytearray(path.read_bytes())
    data[(entry.begin + entry.end) // 2] ^= 16
    path.write_bytes(data)


def test_frontiers_are_read_of_the_last_segment_only(store: StateStore, tmp_path: Path) -> None:
    got = store.restore(PROMPT, 0, "c")
    assert got is not None and got.length == 60
    assert [set(segment.tensors) for segment in got.segments] == [{"0.entry"}, {"0.entry"}, set(tensors(2))]
    assert all(torch.equal(got.segments[2].tensors[name], value) for name, value in tensors(2).items())
    for head in (FIRST, SECOND):
        damage(store, head, "frontier.0.window")  # nobody would look at them
    got = store.restore(PROMPT, 0, "c")
    assert got is not None and got.length == 60 and not store.take_notices()
    assert len(verify_saved(tmp_path)) == 2


def test_a_chain_that_ends_early_brings_the_frontiers_of_where_it_ends(store: StateStore) -> None:
    damage(store, THIRD, "0.entry")
    got = store.restore(PROMPT, 0, "c")
    assert got is not None and got.length == 40 and len(store.take_notices()) == 1
    assert torch.equal(got.segments[1].tensors["frontier.0.window"], tensors(1)["frontier.0.window"])
    damage(store, SECOND, "frontier.0.window")
    got = store.restore(PROMPT, 0, "c")
    assert got is not None and got.length == 20 and set(got.segments[0].tensors) == set(tensors(0))
    assert len(store.take_notices()) == 1 and not store._path(SECOND.key).exists()


def test_two_damaged_segments_leave_what_lies_before_both(store: StateStore) -> None:
    damage(store, THIRD, "frontier.0.window")
    damage(store, SECOND, "frontier.0.window")
    got = store.restore(PROMPT, 0, "c")
    assert got is not None and got.length == 20 and len(store.take_notices()) == 2


@pytest.mark.parametrize("name", ["0.entry", "frontier.0.window", "seal"])
def test_a_fault_names_its_tensor(tmp_path: Path, name: str) -> None:
    path = write_segment(tmp_path, FIRST, tensors(0))
    for place in range(24):
        data = bytearray(path.read_bytes())
        begin = len(data) - 32 if name == "seal" else data.index(tensors(0)[name].numpy().tobytes())
        data[begin + place] ^= 1
        path.write_bytes(data)
        with pytest.raises(BadState, match=name):
            read_segment(path)
        data[begin + place] ^= 1
        path.write_bytes(data)
    read_segment(path)


def test_tensors_longer_than_a_block_and_a_batch_are_verified_to_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_room, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(segment_room, "_BATCH_BYTES", 100)
    content = {f"{n}.entry": torch.arange(n * n, n * n + 40 * n, dtype=torch.uint8).view(-1, 1) for n in range(6)}
    path = write_segment(tmp_path, FIRST, content)
    assert all(torch.equal(read_segment(path).tensors[name], value) for name, value in content.items())
    whole = path.read_bytes()
    for place in range(len(whole) - 32 - sum(map(len, content.values())), len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 128]) + whole[place + 1 :])
        with pytest.raises(BadState):
            read_segment(path)


def test_what_the_disk_cannot_give_is_one_sentence(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, opened = store._path(SECOND.key), Path.open

    class Broken:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> Broken:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def seek(self, place: int) -> int:
            return self._file.seek(place)

        def readinto(self, _: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

    def broken(self: Path, mode: str = "r", buffering: int = -1, **rest: Any) -> Any:
        file = opened(self, mode, buffering, **rest)
        return Broken(file) if self == bad and buffering == 0 else file

    monkeypatch.setattr(Path, "open", broken)
    got = store.restore(PROMPT, 0, "c")
    assert got is not None and got.length == 20
    (notice,) = store.take_notices()
    assert "cannot be read: Input/output error" in notice


def test_segments_before_a_damaged_one_come_first(store: StateStore) -> None:
    damage(store, SECOND, "0.entry")
    chain = read_chain([store._path(head.key) for head in CHAIN])
    assert next(chain).head == FIRST
    with pytest.raises(BadState, match=r"0\.entry"):
        next(chain)


POOLS = (
    Pool(0, "latent", 6, 1, torch.bfloat16), Pool(0, "index", 128, 1, torch.uint8, "index"),
    Pool(1, "entry", ENTRY, 4, torch.uint8, "entry"), Pool(1, "index", 128, 4, torch.uint8, "index"),
    Pool(2, "entry", 5, 32, torch.float32), Pool(3, "latent", 3, 1, torch.bfloat16),
)  # fmt: skip
FRONTIERS = (
    Frontier(1, "window", (8, ENTRY_BYTES), torch.uint8), Frontier(1, "entry_frontier", (8, 2, 5), torch.float32),
    Frontier(2, "entry_frontier", (32, 2, 5), torch.float32),
)  # fmt: skip
LAYOUT = CacheLayout(256, POOLS, FRONTIERS)


def made_cache(device: str = "cpu", layout: CacheLayout = LAYOUT) -> KvCache:
    return KvCache(layout, 16, 2, torch.device(device))


def filled(cache: KvCache, tokens: int) -> CachedSequence:
    """A conversation of random rows on pages that do not follow each other."""
    first, second = cache.open(), cache.open()
    assert first is not None and second is not None
    for length in range(0, tokens, 256):
        assert cache.reserve(first, length) and cache.reserve(second, length)
    assert cache.reserve(second, tokens)
    cache.close(first)
    for tensor in (*cache._pools.values(), *cache._frontiers.values()):
        tensor.random_(0, 256) if tensor.dtype == torch.uint8 else tensor.normal_()
    second.length = tokens
    return second


def check_import(device: str, layout: CacheLayout, rng: random.Random) -> None:
    source, target = made_cache(device, layout), made_cache(device, layout)
    tokens = rng.randrange(300, 1500)
    talk, into = filled(source, tokens), filled(target, 256)
    cuts = sorted({0, tokens, *(rng.randrange(tokens) for _ in range(5))})
    exports = []
    for begin, end in pairwise(cuts):
        rows = source.export_rows(talk, begin, end)
        assert source.accepts(begin, end, rows)
        if end < tokens:
            rows = {name: tensor for name, tensor in rows.items() if not name.startswith("frontier.")}
            assert source.accepts(begin, end, rows, ends=False) and not (
                layout.frontiers and source.accepts(begin, end, rows)
            )
        exports.append((begin, rows))
    target.truncate(into, 0)
    assert target.reserve(into, tokens)
    live = rng.choice([0, rng.randrange(tokens), cuts[1]])  # what was never forgotten
    target.import_rows(into, live, [(0, source.export_rows(talk, 0, live))])
    for (_, rows), end in zip(exports, cuts[1:], strict=True):
        if end <= live:  # what is there stays as it is
            rows.update({name: torch.zeros_like(tensor) for name, tensor in rows.items()})
    target.import_rows(into, tokens, exports)
    assert into.length == tokens
    wanted, got = source.export_rows(talk, 0, tokens), target.export_rows(into, 0, tokens)
    assert all(torch.equal(got[name].view(torch.uint8), wanted[name].view(torch.uint8)) for name in wanted)


@pytest.mark.parametrize("seed", range(12))
def test_a_chain_of_exports_is_the_conversation_again(seed: int) -> None:
    layout = LAYOUT if seed % 2 else CacheLayout(256, POOLS, ())
    check_import("cpu", layout, random.Random(seed))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("staging_bytes", [700, 5000, cache_room.STAGING_BYTES])
def test_a_chain_of_exports_through_pinned_buffers(staging_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_room, "STAGING_BYTES", staging_bytes)
    for seed in range(4):
        check_import("cuda", LAYOUT, random.Random(seed))


@pytest.mark.parametrize("tokens", [256, 257, 270, 287, 288])
def test_of_a_single_windows_ring_only_the_open_window_is_kept(tokens: int) -> None:
    cache = made_cache()
    talk = filled(cache, tokens)
    rows = cache.export_rows(talk, 0, tokens)
    kept, ring = rows["frontier.2.entry_frontier"], cache.frontier(2, "entry_frontier")[talk.row]
    assert len(kept) == tokens % 32 and torch.equal(kept, ring[: len(kept)])
    assert len(rows["frontier.1.entry_frontier"]) == len(rows["frontier.1.window"]) == 8  # overlap: the one before, too
    assert cache.accepts(0, tokens, rows) and not cache.accepts(0, tokens - 1, rows)


def test_an_export_that_leaves_out_tokens_is_refused() -> None:
    source, target = made_cache(), made_cache()
    talk, into = filled(source, 600), filled(target, 600)
    target.truncate(into, 0)
    assert target.reserve(into, 600)
    with pytest.raises(AssertionError, match="leave out"):
        target.import_rows(into, 600, [(0, source.export_rows(talk, 0, 500))])


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 50])
def test_batches_for_the_gpu_hold_every_row_once_in_order(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_room, "STAGING_BYTES", rows * 8 + 3)
    monkeypatch.setattr(cache_room._Staging, "_send", lambda self, parts: torch.cat(parts))
    staging = cache_room._Staging(torch.device("cuda"))
    pieces = torch.arange(22.0).view(11, 2).split([0, 3, 1, 0, 5, 2])
    sent = list(staging.upload(pieces))
    assert torch.equal(torch.cat(sent), torch.cat(pieces)) and max(map(len, sent)) <= rows
    assert len(sent) < 11 or rows == 1
    assert [len(one) for one in staging.upload([torch.empty(0, 2)])] == [0]
