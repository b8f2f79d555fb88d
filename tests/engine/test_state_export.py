"""Segments that leave and come back, and segments whose writer was killed: whole chains, or a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.api import BadState, delete_saved, export_saved, import_saved, list_saved, verify_saved
from engine.state.segment import SegmentHead
from engine.state.store import StateStore

MODEL = "0123456789abcdef"
FIRST = SegmentHead(MODEL, "exact", "", 0, 40, tuple(range(40)), (), 40)
SECOND = SegmentHead(MODEL, "exact", FIRST.key, 40, 50, tuple(range(10)), (), 50)
THIRD = SegmentHead(MODEL, "exact", SECOND.key, 50, 55, tuple(range(5)), (), 55)
CHAIN = (FIRST, SECOND, THIRD)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    made = StateStore(tmp_path / "here", MODEL, "exact", cut_anywhere=True, budget_bytes=1 << 30)
    for number, head in enumerate(CHAIN):
        made.seal("c", head, lambda n=number: {"rows": torch.full((4,), float(n))})
    made.flush()
    yield made
    made.close()


def exported(store: StateStore, tmp_path: Path) -> list[Path]:
    (tmp_path / "out").mkdir()
    return export_saved(store.folder, "c", tmp_path / "out")


def test_a_chain_goes_out_and_comes_in(store: StateStore, tmp_path: Path) -> None:
    files = exported(store, tmp_path)
    assert [path.stem for path in files] == [head.key for head in CHAIN]
    there = tmp_path / "there"
    assert import_saved(there, files, "x") == 3 and verify_saved(there) == []
    assert import_saved(there, files, "y") == 0
    assert {one.conversations for one in list_saved(there)} == {("x", "y")}
    delete_saved(there, "x")
    delete_saved(there, "y")
    assert list_saved(there) == [] and not list(there.glob("*/*.kv"))
    assert export_saved(tmp_path / "nowhere", "c", tmp_path) == []


def test_a_damaged_segment_and_what_builds_on_it_stay_behind(store: StateStore, tmp_path: Path) -> None:
    broken = bytearray(store._path(SECOND.key).read_bytes())
    broken[-1] ^= 1
    store._path(SECOND.key).write_bytes(broken)
    assert [path.stem for path in exported(store, tmp_path)] == [FIRST.key]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nothing_is_taken_over_when_anything_is_wrong(store: StateStore, tmp_path: Path, which: int) -> None:
    files, there = exported(store, tmp_path), tmp_path / "there"
    if which < 2:
        with pytest.raises(BadState, match="not there"):
            import_saved(there, [path for number, path in enumerate(files) if number != which], "x")
    content = bytearray(files[which].read_bytes())
    content[len(content) // 2] ^= 4
    files[which].write_bytes(content)
    with pytest.raises(BadState):
        import_saved(there, files, "x")
    assert not there.exists()


def test_a_model_name_cannot_lead_elsewhere(tmp_path: Path) -> None:
    from engine.state.segment import write_segment

    path = write_segment(tmp_path, replace(FIRST, model="../../evil"), {"rows": torch.zeros(4)})
    with pytest.raises(BadState, match="which model"):
        import_saved(tmp_path / "there", [path], "x")


def test_a_file_whose_writer_was_killed_is_found_again_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(tmp_path, MODEL, "exact", cut_anywhere=True, budget_bytes=1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(store._index, "add", lambda *values: None)
        store.seal("c", FIRST, lambda: {"rows": torch.zeros(4)})
        store.close()
    assert list_saved(tmp_path) == []
    StateStore(tmp_path, MODEL, "exact", cut_anywhere=True, budget_bytes=1 << 30).close()
    assert [one.conversations for one in list_saved(tmp_path)] == [("c",)] and verify_saved(tmp_path) == []
    delete_saved(tmp_path, "c")
    assert not list(tmp_path.glob("*/*.kv"))
