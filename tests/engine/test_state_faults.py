"""Saved state that is damaged, foreign or in the way: the prompt is read again, the person hears of it, nothing else changes."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.api import BadState, Engine, EngineSettings, Message, list_saved, prune_saved, verify_saved
from engine.chat.prompt import Prompt, layout_prompt
from engine.state import segment as segment_room
from engine.state.segment import SUFFIX, SavedSpan, SegmentHead, read_segment, write_segment
from engine.state.store import StateStore
from tests.engine.test_state_resume import reply
from tests.support.oracle import OracleCase

HEAD = SegmentHead(
    model="m1", layout="exact", parent="", start=0, stop=40, token_ids=tuple(range(40)),
    spans=(SavedSpan(3, 4, "abc"),), next_position=40, answers=(("d1", (7, 8)),),
)  # fmt: skip


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "0.latent": torch.randn(40, 16, generator=generator),
        "0.rope": torch.randn(40, 4, generator=generator).bfloat16(),
        "1.window": torch.randn(8, 16, generator=generator),
    }


def prompt(count: int = 60) -> Prompt:
    return layout_prompt(list(range(count)), [], None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    made = StateStore(tmp_path, "m1", "exact", cut_anywhere=True, budget_bytes=1 << 30)
    yield made
    made.close()


def plain(head: SegmentHead = HEAD) -> SegmentHead:
    return replace(head, spans=())


def saved(store: StateStore, head: SegmentHead, seed: int = 0, conversation: str = "c") -> Path:
    store.seal(conversation, head, lambda: tensors(seed))
    store.flush()
    return store._path(head.key)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = write_segment(tmp_path, HEAD, tensors())
    got = read_segment(path)
    assert got.head == HEAD
    assert all(torch.equal(got.tensors[name], value) for name, value in tensors().items())
    assert not list(tmp_path.glob(".*"))


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = write_segment(tmp_path, HEAD, tensors())
    whole = path.read_bytes()
    rng = random.Random(5)
    places = {*range(0, 12), len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(1000))}
    for place in sorted(places):
        broken = bytearray(whole)
        broken[place] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(BadState) as caught:
            read_segment(path)
        assert str(caught.value).count("\n") == 0


def test_every_truncation_and_extension_is_noticed(tmp_path: Path) -> None:
    path = write_segment(tmp_path, HEAD, tensors())
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(BadState):
            read_segment(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(BadState):
        read_segment(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0, 1, 2", f"[{1 << 70}, 1, 2"), ("[0, 1, 2", "[0, 1, 3"), ("[0, 1, 2", "[0, 1, null"), ("[0, 1, 2", "[1, 2"),
        ('"start": 0', '"start": Infinity'), ('"start": 0', '"begin": 0'), ('"start": 0', '"start": 5'),
        ('"0.rope": ', '"0.more": '), ('"0.rope": "', '"0.rope": "0'),
    ],
)  # fmt: skip
def test_a_sealed_header_that_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = write_segment(tmp_path, HEAD, tensors())
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length : -32]
    fields = header["__metadata__"]
    changed = {name: value.replace(old, new) for name, value in fields.items()}
    assert changed != fields
    raw = json.dumps({**header, "__metadata__": changed}).encode()
    raw = len(raw).to_bytes(8, "little") + raw
    path.write_bytes(raw + data + segment_room._seal(raw))
    with pytest.raises(BadState):
        read_segment(path)


def test_swapped_files_are_noticed(store: StateStore) -> None:
    one, two = saved(store, plain()), saved(store, replace(plain(), token_ids=tuple(range(1, 41))))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert store.restore(prompt(), 0, "c") is None
    assert "damaged" in store.take_notices()[0]


@pytest.mark.parametrize("step", [1, -1])
def test_other_format_other_model_and_other_layout_are_refused(
    tmp_path: Path, store: StateStore, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(segment_room, "FORMAT", segment_room.FORMAT + step)
        path = write_segment(tmp_path / "m1", plain(), tensors())
    with pytest.raises(BadState, match="another version"):
        read_segment(path)
    saved(store, plain())
    for other in (
        StateStore(tmp_path, "m2", "exact", True, 1 << 30),
        StateStore(tmp_path, "m1", "compact", True, 1 << 30),
    ):
        assert other.restore(prompt(), 0, "c") is None
        other.close()
    assert store.restore(prompt(), 0, "c").length == 40


def test_segment_moved_to_another_model_is_refused(tmp_path: Path, store: StateStore) -> None:
    path = saved(store, plain())
    other = StateStore(tmp_path, "m2", "exact", True, 1 << 30)
    shutil.copy(path, tmp_path / "m2" / path.name)
    assert any("another model" in fault for fault in verify_saved(tmp_path))
    assert other.restore(prompt(), 0, "c") is None
    other.close()


def test_missing_parent_ends_the_chain_there(store: StateStore) -> None:
    first = plain()
    second = replace(first, parent=first.key, start=40, stop=50, token_ids=tuple(range(40, 50)))
    saved(store, first)
    store.seal("c", second, lambda: {k: v[:10] for k, v in tensors().items()})
    store.flush()
    assert store.restore(prompt(), 0, "c").length == 50
    store._path(first.key).unlink()
    assert store.restore(prompt(), 0, "c") is None
    assert store.take_notices()
    assert not store._path(second.key).exists()  # nothing could ever reach it


def test_damaged_second_segment_keeps_the_first(store: StateStore) -> None:
    first = plain()
    second = replace(first, parent=first.key, start=40, stop=50, token_ids=tuple(range(40, 50)))
    saved(store, first)
    path = saved(store, second, seed=1)
    path.write_bytes(path.read_bytes()[:-3])
    got = store.restore(prompt(), 0, "c")
    assert got is not None and got.length == 40
    assert len(store.take_notices()) == 1 and not store.take_notices()


def test_pictures_are_part_of_the_identity(store: StateStore) -> None:
    head = replace(HEAD, spans=(SavedSpan(3, 4, "cat"),))
    assert head.key != replace(HEAD, spans=(SavedSpan(3, 4, "dog"),)).key
    saved(store, replace(head, stop=40))
    assert store.restore(prompt(), 0, "c") is None  # the prompt has no picture at 3


def test_full_disk_is_said_and_nothing_half_is_left(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segment_room, "save_file", full)
    path = saved(store, plain())
    assert not path.exists() and not list(path.parent.glob(".*.part"))
    assert "No space left" in store.take_notices()[0]
    monkeypatch.undo()
    assert saved(store, plain()).exists()


def test_full_disk_while_making_it_durable(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segment_room.os, "fsync", full)
    path = saved(store, plain())
    assert not path.exists() and not list(path.parent.glob(".*.part"))
    monkeypatch.undo()


def test_directory_deleted_while_running(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = StateStore(folder, "m1", "exact", True, 1 << 30)
    saved(store, plain())
    shutil.rmtree(folder)
    assert store.restore(prompt(), 0, "c") is None
    saved(store, replace(plain(), token_ids=tuple(range(2, 42))))  # says so or works, but does not raise
    store.close()


def test_unusable_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadState) as caught:
        StateStore(tmp_path / "file", "m1", "exact", True)
    assert str(caught.value).count(". ") == 0


def test_clock_set_back_changes_nothing(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    saved(store, plain())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    newer = replace(plain(), token_ids=tuple(range(5, 45)))
    saved(store, newer, seed=1)
    assert store._index.coldest_leaf(set()).key == plain().key
    assert store.restore(prompt(), 0, "c").length == 40


def test_lost_or_broken_index_is_built_again(tmp_path: Path) -> None:
    store = StateStore(tmp_path, "m1", "exact", True, 1 << 30)
    saved(store, plain())
    store.close()
    for damage in ("remove", "garbage"):
        for path in tmp_path.glob("index.sqlite3*"):
            path.unlink()
        if damage == "garbage":
            (tmp_path / "index.sqlite3").write_bytes(b"this is not a database" * 100)
        again = StateStore(tmp_path, "m1", "exact", True, 1 << 30)
        assert again.restore(prompt(), 0, "c").length == 40
        assert again._index.answer_ids("m1", "d1") == [7, 8]
        again.close()


def test_budget_evicts_cold_leaves_but_never_the_newest_or_an_ancestor(tmp_path: Path) -> None:
    probe = write_segment(tmp_path, plain(), tensors()).stat().st_size
    store = StateStore(tmp_path / "s", "m1", "exact", True, budget_bytes=int(2.5 * probe))
    first = plain()
    chain = [first]
    for n in range(4):
        tip = chain[-1]
        ids = tuple(range(100 * n, 100 * n + 40))
        chain.append(replace(first, parent=tip.key, start=tip.stop, stop=tip.stop + 40, token_ids=ids))
    for head in chain:
        saved(store, head)
        assert store._path(head.key).exists()
    kept = [head for head in chain if store._path(head.key).exists()]
    assert kept[0] is chain[0] and chain[-1] in kept  # the chain stays usable: no hole
    store.close()
    other = StateStore(tmp_path / "t", "m1", "exact", True, budget_bytes=int(2.5 * probe))
    heads = [replace(first, token_ids=tuple(range(n, n + 40))) for n in range(5)]
    for head in heads:
        saved(other, head)
    assert [other._path(h.key).exists() for h in heads] == [False, False, False, True, True]
    assert other._index.total_bytes() <= 2.5 * probe
    other.close()


def test_two_processes_share_a_directory(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dataclasses import replace;"
        "from tests.engine.test_state_faults import plain, saved; from engine.state.store import StateStore;"
        "n = int(sys.argv[2]); s = StateStore(Path(sys.argv[1]), 'm1', 'exact', True, 1 << 30);"
        "[saved(s, replace(plain(), token_ids=tuple(range(i, i + 40)))) for i in range(n, n + 12)]; s.close()"
    )
    root = Path(__file__).resolve().parents[2]
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)], cwd=root) for n in (0, 6)]
    assert [run.wait(120) for run in runs] == [0, 0]
    assert not verify_saved(tmp_path)
    assert len(list_saved(tmp_path)) == 18


def test_verify_and_prune_from_outside(store: StateStore, tmp_path: Path) -> None:
    paths = [saved(store, replace(plain(), token_ids=tuple(range(n, n + 40)))) for n in range(4)]
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    (faults,) = verify_saved(tmp_path)
    assert paths[1].name in faults
    files, freed = prune_saved(tmp_path, keep_bytes=2 * paths[3].stat().st_size)
    assert files == 2 and freed > 0
    assert not verify_saved(tmp_path) and not paths[0].exists() and paths[3].exists()
    with pytest.raises(BadState):
        list_saved(tmp_path / "nowhere")


def test_damage_between_turns_reaches_the_person_and_the_answer_is_right(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("deepseek_v4")
    options = EngineSettings(device="cpu", state_dir=tmp_path, cache_tokens=512, threads=1)
    engine = Engine.open(case.path, options)
    messages = [Message("user", "zqxj" * 20)]
    first = reply(engine, messages, "a", monkeypatch)
    engine.close()
    messages += [Message("assistant", first.text), Message("user", "go on")]
    whole = Engine.open(case.path, replace(options, state_dir=None))
    wanted = reply(whole, messages, "a", monkeypatch)
    whole.close()
    for path in tmp_path.glob(f"*/*{SUFFIX}"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    engine = Engine.open(case.path, options)
    got = reply(engine, messages, "a", monkeypatch)
    assert got.restored == 0 and got.notices and "damaged" in got.notices[0]
    assert got.text == wanted.text
    engine.close()


def test_writer_never_blocks_the_answer(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, gate = oracle_case("hy_v4"), threading.Event()
    original = StateStore._write
    monkeypatch.setattr(StateStore, "_write", lambda self, job: (gate.wait(60), original(self, job)))
    engine = Engine.open(case.path, EngineSettings(device="cpu", state_dir=tmp_path, cache_tokens=512, threads=1))
    for n in range(3):  # finishes although the disk does nothing
        reply(engine, [Message("user", f"{n} zqxj")], f"c{n}", monkeypatch)
    assert not list(tmp_path.glob(f"*/*{SUFFIX}"))
    gate.set()
    engine.close()
    assert list(tmp_path.glob(f"*/*{SUFFIX}"))


def test_state_that_could_not_be_written_is_written_with_the_next_turn(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("deepseek_v4")
    options = EngineSettings(device="cpu", state_dir=tmp_path, cache_tokens=512, threads=1)
    engine = Engine.open(case.path, options)
    messages = [Message("user", "zqxj" * 20)]
    with monkeypatch.context() as patch:

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(segment_room, "save_file", full)
        first = reply(engine, messages, "a", monkeypatch)
        engine.start("a").save()
    assert not list(tmp_path.glob(f"*/*{SUFFIX}"))
    messages += [Message("assistant", first.text), Message("user", "go on")]
    second = reply(engine, messages, "a", monkeypatch)
    assert any("No space left" in notice for notice in second.notices)
    engine.close()
    messages += [Message("assistant", second.text), Message("user", "and on")]
    again = Engine.open(case.path, options)
    assert reply(again, messages, "a", monkeypatch).restored > 80
    again.close()


def test_broken_index_never_costs_an_answer(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from engine.state.index import StateIndex

    engine = Engine.open(
        oracle_case("hy_v4").path, EngineSettings(device="cpu", state_dir=tmp_path, cache_tokens=512, threads=1)
    )
    plain_answer = reply(engine, [Message("user", "zqxj" * 10)], "a", monkeypatch)

    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    for name in ("has", "children", "touch", "answer_ids", "add", "claim"):
        monkeypatch.setattr(StateIndex, name, broken)
    got = reply(engine, [Message("user", "zqxj" * 10)], "b", monkeypatch)
    assert got.text == plain_answer.text
    monkeypatch.undo()
    engine.close()
