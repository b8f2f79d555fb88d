"""Conversations as zip files: all of it goes out and comes back, and a file from anywhere can do no harm."""

from __future__ import annotations

import copy
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from conftest import png_bytes

from app import parcel, transfer
from app.refusals import Refusal, StoreError
from app.store import Answer, ReplySettings, Store

STATS = {"new_tokens": 3, "decode_tokens_per_second": 2.5, "notices": ["read again"]}


@pytest.fixture
def source(tmp_path, make_picture):
    """A store with one conversation: two branches, thinking, a picture used twice, an error."""
    store = Store(tmp_path / "source")
    conversation = store.create("Tab\there  and ünder", ReplySettings("be kind", 0.5, 100, 7, False))
    first = store.add_user(conversation.id, None, "Hi\n\tthere", [make_picture()])
    answer = store.add_answer(conversation.id, first.id)
    store.update_answer(answer.id, Answer("Hello", "hm", "done", "stop", "", STATS))
    other = store.add_answer(conversation.id, first.id)
    store.update_answer(other.id, Answer("", "", "error", "", "It failed."))
    edited = store.add_user(conversation.id, None, "Hi again", keep_from=first.id)
    store.add_answer(conversation.id, edited.id)  # still queued
    store.show_branch(conversation.id, answer.id)
    yield store, conversation.id
    store.close()


@pytest.fixture
def target(tmp_path):
    store = Store(tmp_path / "target")
    yield store
    store.close()


def written(source, tmp_path) -> Path:
    store, conversation_id = source
    path = tmp_path / "out.zip"
    transfer.export_conversation(store, conversation_id, path)
    return path


def test_everything_comes_back(source, target, tmp_path):
    path = written(source, tmp_path)
    made = transfer.import_conversation(target, path)
    before, after = source[0].whole(source[1]), target.whole(made.id)
    assert (after.title, after.settings, after.leaf) == (before.title, before.settings, before.leaf)
    assert [m.state for m in before.messages].count("queued") == 1
    assert [m.state for m in after.messages][:-1] == [m.state for m in before.messages][:-1]
    assert after.messages[-1].state == "interrupted" and list(after.messages[:-1]) == list(before.messages[:-1])
    shown = target.path(made.id)
    assert [m.text for m in shown] == ["Hi\n\tthere", "Hello"] and shown[1].num_siblings == 2
    assert shown[0].attachments[0].path.read_bytes() == png_bytes() and shown[0].attachments[0].preview_path.exists()
    again = transfer.import_conversation(target, path)
    assert again.id != made.id and len(target.list()) == 2
    target.delete(made.id)
    assert target.path(again.id)[0].attachments[0].path.exists()
    assert not list(target.directory.glob("transfer-*")) and not list(tmp_path.glob(".out*"))


def parts_of(path: Path) -> tuple[dict, dict[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        others = {name: archive.read(name) for name in archive.namelist() if name != "conversation.json"}
        return json.loads(archive.read("conversation.json")), others


def zipped(path: Path, values: object, others: dict[str, bytes], compress: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        archive.writestr("conversation.json", values if isinstance(values, (str, bytes)) else json.dumps(values))
        for name, content in others.items():
            archive.writestr(name, content)
    return path


def refused(store: Store, path: Path, *words: str) -> None:
    with pytest.raises(Refusal) as caught:
        transfer.import_conversation(store, path)
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    for word in words:
        assert word in sentence, sentence
    assert store.list() == [] and not any(store.files.originals_dir.iterdir())
    assert not list(store.directory.glob("transfer-*"))


def change(values: dict, keys: tuple, value: object) -> dict:
    values = copy.deepcopy(values)
    place = values
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return values


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("format",), "other"), (("version",), 2), (("version",), "1"), (("title",), ""), (("title",), 5),
        (("title",), "\ud800"), (("created_at",), "now"), (("created_at",), 1e300), (("created_at",), True),
        (("leaf",), 99), (("leaf",), -1), (("leaf",), "x"), (("settings",), []), (("settings", "temperature"), -1),
        (("settings", "temperature"), float("nan")), (("settings", "max_tokens"), 0), (("settings", "seed"), 1 << 70),
        (("settings", "thinking"), 1), (("settings", "system"), None), (("messages",), {}), (("messages", 0), "x"),
        (("messages", 0, "role"), "system"), (("messages", 0, "role"), "assistant"), (("messages", 0, "parent"), 0),
        (("messages", 1, "parent"), 4), (("messages", 1, "parent"), 1), (("messages", 1, "parent"), None),
        (("messages", 1, "state"), "odd"), (("messages", 1, "finish_reason"), "odd"), (("messages", 1, "stats"), 3),
        (("messages", 1, "stats"), {"new_tokens": "<b>"}), (("messages", 1, "stats"), {"notices": [1]}),
        (("messages", 1, "stats"), {"x": 1 << 80}), (("messages", 0, "images"), [{"sha256": "../x", "name": "a"}]),
        (("messages", 0, "images"), [{"sha256": "0" * 64, "name": "a"}]), (("messages", 0, "images"), []),
        (("messages", 1, "images"), [{"sha256": "0" * 64, "name": "a"}]), (("messages", 1, "text"), None),
        (("messages", 1, "text"), "half \udc00"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused(source, target, tmp_path, keys, value):
    values, others = parts_of(written(source, tmp_path))
    if keys == ("messages", 0, "images") and value == []:
        values = change(values, ("messages", 3, "images"), [])  # now no message shows the picture
    refused(target, zipped(tmp_path / "bad.zip", change(values, keys, value), others))


def test_wrong_files_are_refused(source, target, tmp_path):
    path = written(source, tmp_path)
    values, others = parts_of(path)
    image = next(iter(others))
    bad = tmp_path / "bad.zip"
    for name in ("../evil", "/etc/evil", "images/../evil", "images/x", "state/../../a.kv", "extra", "images\\evil"):
        refused(target, zipped(bad, values, {**others, name: b"x"}), "unexpected part")
    refused(target, zipped(bad, values, {}), "missing")
    refused(target, zipped(bad, values, {image: b"not the picture"}), "damaged")
    refused(target, zipped(bad, values, {**others, "images/" + "0" * 64: b"x"}), "no message shows")
    refused(target, zipped(bad, values, others, compress=True), "compressed")
    refused(target, zipped(bad, "[" * 100_000, others))
    refused(target, zipped(bad, b"\xff\xfe", others))
    refused(target, zipped(bad, '{"format": NaN}', others), "NaN")
    refused(target, zipped(bad, "7", others), "another program")
    whole = path.read_bytes()
    for content in (b"", b"PK", b"x" * 1000, whole[: len(whole) // 2]):
        bad.write_bytes(content)
        refused(target, bad, "not a whole zip")
    refused(target, tmp_path / "gone.zip", "gone.zip")
    with zipfile.ZipFile(bad, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("conversation.json", json.dumps(values))
        archive.writestr("conversation.json", json.dumps(values))
    refused(target, bad, "unexpected part")


def test_a_text_is_no_picture(source, target, tmp_path):
    values, _ = parts_of(written(source, tmp_path))
    text = b"this is no picture"
    sha256 = hashlib.sha256(text).hexdigest()
    for place in (0, 3):
        values["messages"][place]["images"] = [{"sha256": sha256, "name": "a.png"}]
    refused(target, zipped(tmp_path / "bad.zip", values, {f"images/{sha256}": text}), "not a picture")


def test_a_bomb_does_not_unpack(source, target, tmp_path, monkeypatch):
    values, _ = parts_of(written(source, tmp_path))
    monkeypatch.setattr(parcel, "MAX_JSON_BYTES", 100_000)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversation.json", json.dumps(values) + " " * 1_000_000)
    refused(target, bomb, "too large")
    content = bytearray(bomb.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = content.index(mark) + offset
        content[place : place + 4] = (50_000).to_bytes(4, "little")  # claims to be small
    bomb.write_bytes(content)
    refused(target, bomb)


def test_foreign_or_damaged_state_changes_nothing(source, target, tmp_path):
    pytest.importorskip("engine.api")
    values, others = parts_of(written(source, tmp_path))
    state = {f"state/{'0' * 40}.kv": b"no state"}
    refused(target, zipped(tmp_path / "bad.zip", values, {**others, **state}), "saved state")
    assert not list((target.directory / "state").glob("*/*.kv"))


def test_a_full_disk_leaves_nothing(source, target, tmp_path, monkeypatch):
    path = written(source, tmp_path)

    def full(*values):
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr("app.store.whole.insert_messages", full)
        refused(target, path, "full")

    def no_room(*values, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("zipfile.ZipFile.writestr", no_room)
        with pytest.raises(Refusal, match="No space left"):
            transfer.export_conversation(source[0], source[1], tmp_path / "other.zip")
    assert sorted(one.name for one in tmp_path.glob("*.zip")) == ["out.zip"] and not list(tmp_path.glob(".other*"))


def test_every_cut_of_a_parcel_is_refused(source, tmp_path):
    whole = written(source, tmp_path).read_bytes()
    for end in range(0, len(whole) - 1, 97):
        (tmp_path / "cut.zip").write_bytes(whole[:end])
        with pytest.raises(Refusal):
            parcel.read_parcel(tmp_path / "cut.zip")


def test_random_damage_never_ends_in_a_traceback(source, tmp_path):
    import random

    whole = written(source, tmp_path).read_bytes()
    chance = random.Random(3)
    for _ in range(300):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        (tmp_path / "broken.zip").write_bytes(broken)
        try:
            parcel.read_parcel(tmp_path / "broken.zip")
        except Refusal as error:
            assert "\n" not in str(error)


def test_file_names_are_safe():
    assert transfer.file_name("a/b\\..: <c>?") == "ab c"
    assert transfer.file_name("../..") == "conversation" and transfer.file_name("Grüße 7") == "Grüße 7"
