"""The store: what is written is there after anything, and two writers never overwrite each other unseen."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.refusals import ChangedElsewhere, StoreError
from app.store import Answer, ReplySettings, Store, attachments
from app.store.migrations import MIGRATIONS

ROOT = Path(__file__).parents[2]


def test_conversation_is_there_after_reopening(tmp_path, make_picture):
    store = Store(tmp_path / "d")
    wishes = ReplySettings("be kind", 0.5, 100, 7, False)
    conversation = store.create("First  words\nhere", wishes)
    user = store.add_user(conversation.id, None, "Hi\n\tthere", [make_picture()])
    answer = store.add_answer(conversation.id, user.id)
    store.update_answer(answer.id, Answer("Hello", "hm", "done", "stop", "", {"new_tokens": 3}))
    store.close()
    again = Store(tmp_path / "d")
    kept = again.get(conversation.id)
    assert (kept.title, kept.settings) == ("First words here", wishes)
    first, second = again.path(conversation.id)
    assert (first.text, first.attachments[0].name) == ("Hi\n\tthere", "dot.png")
    assert first.attachments[0].path.read_bytes().startswith(b"\x89PNG")
    assert first.attachments[0].preview_path.read_bytes()[8:12] == b"WEBP"
    assert (second.text, second.thinking, second.state, second.stats) == ("Hello", "hm", "done", {"new_tokens": 3})
    again.close()


def test_unfinished_answers_become_interrupted(tmp_path):
    store = Store(tmp_path / "d")
    conversation = store.create("x")
    user = store.add_user(conversation.id, None, "x")
    for state in ("queued", "streaming"):
        store.update_answer(store.add_answer(conversation.id, user.id).id, Answer("half", "", state))
    store.close()
    again = Store(tmp_path / "d")
    assert [again.message(one).state for one in again.siblings(again.path(conversation.id)[-1].id)] == [
        "interrupted"
    ] * 2
    again.close()


def test_stale_page_is_told(store):
    conversation = store.create("a")
    store.add_user(conversation.id, None, "from elsewhere", revision=conversation.revision)
    for act in (
        lambda: store.rename(conversation.id, "b", conversation.revision),
        lambda: store.add_user(conversation.id, None, "late", revision=conversation.revision),
        lambda: store.configure(conversation.id, ReplySettings("s"), conversation.revision),
        lambda: store.delete(conversation.id, conversation.revision),
    ):
        with pytest.raises(ChangedElsewhere, match="changed elsewhere"):
            act()
    assert [message.text for message in store.path(conversation.id)] == ["from elsewhere"]


def test_text_while_streaming_is_no_new_revision(store):
    conversation = store.create("a")
    answer = store.add_answer(conversation.id, store.add_user(conversation.id, None, "q").id)
    before = store.get(conversation.id).revision
    store.update_answer(answer.id, Answer("some", "", "streaming"))
    assert store.get(conversation.id).revision == before
    store.update_answer(answer.id, Answer("some more", "", "done", "stop"))
    assert store.get(conversation.id).revision == before + 1


def test_branches(store):
    conversation = store.create("a")
    first = store.add_user(conversation.id, None, "one")
    old = store.add_answer(conversation.id, first.id)
    follow_up = store.add_user(conversation.id, old.id, "two")
    new = store.add_answer(conversation.id, first.id)
    path = store.path(conversation.id)
    assert [message.id for message in path] == [first.id, new.id]
    assert (path[-1].sibling_index, path[-1].num_siblings) == (1, 2)
    store.show_branch(conversation.id, old.id)
    assert [message.id for message in store.path(conversation.id)] == [first.id, old.id, follow_up.id]
    edited = store.add_user(conversation.id, None, "one, better")
    assert store.siblings(edited.id) == [first.id, edited.id]


def test_a_message_of_another_conversation_is_no_parent(store):
    mine, other = store.create("a"), store.create("b")
    message = store.add_user(other.id, None, "x")
    with pytest.raises(StoreError):
        store.add_user(mine.id, message.id, "y")


def test_delete_keeps_pictures_that_others_use(store, make_picture):
    first, second = store.create("a"), store.create("b")
    shared, own = make_picture(), make_picture("own.png", color="blue")
    store.add_user(first.id, None, "x", [shared, own])
    kept = store.add_user(second.id, None, "y", [shared]).attachments[0]
    store.delete(first.id)
    assert kept.path.exists() and kept.preview_path.exists()
    assert not store.files.original(own.sha256).exists() and not store.files.preview(own.sha256).exists()
    store.delete(second.id)
    assert not kept.path.exists()
    with pytest.raises(StoreError, match="no longer exists"):
        store.get(first.id)


def test_search_finds_titles_and_text_in_any_case(store):
    first = store.create("Über Katzen")
    second = store.create("Other")
    store.add_user(second.id, None, "ÄPFEL und 100% Birnen")
    assert [one.id for one in store.list("über")] == [first.id]
    assert [one.id for one in store.list("birnen äpfel")] == [second.id]
    assert [one.id for one in store.list("100%")] == [second.id]
    assert store.list("%") == store.list("100%") and not store.list("kiwi")
    assert [one.id for one in store.list()] == [second.id, first.id]


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_text_comes_back(tmp_path_factory, text):
    store = Store(tmp_path_factory.mktemp("any") / "d")
    try:
        conversation = store.create(text)
        assert store.message(store.add_user(conversation.id, None, text).id).text == text
        store.list(text)
    finally:
        store.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=25))
def test_the_shown_path_is_always_a_chain(tmp_path_factory, steps):
    store = Store(tmp_path_factory.mktemp("chain") / "d")
    try:
        conversation = store.create("t")
        known: list[int] = []
        for parent, is_user in steps:
            parent_id = known[parent % len(known)] if known else None
            if is_user or parent_id is None:
                known.append(store.add_user(conversation.id, parent_id, "u").id)
            else:
                known.append(store.add_answer(conversation.id, parent_id).id)
        store.show_branch(conversation.id, known[steps[0][0] % len(known)])
        path = store.path(conversation.id)
        assert path[0].parent_id is None
        assert all(child.parent_id == parent.id for parent, child in itertools.pairwise(path))
    finally:
        store.close()


def test_a_second_instance_is_refused(tmp_path):
    store = Store(tmp_path / "d")
    with pytest.raises(StoreError, match="already running"):
        Store(tmp_path / "d")
    store.close()
    Store(tmp_path / "d").close()


def test_a_newer_format_is_refused(tmp_path):
    Store(tmp_path / "d").close()
    db = sqlite3.connect(tmp_path / "d" / "conversations.sqlite3")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    for _ in range(2):  # the refusal also lets go of the lock
        with pytest.raises(StoreError, match="newer version"):
            Store(tmp_path / "d")


def test_a_damaged_file_is_one_sentence(tmp_path):
    Store(tmp_path / "d").close()
    (tmp_path / "d" / "conversations.sqlite3").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path / "d")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits")
def test_directories_are_private(store, make_picture):
    conversation = store.create("a")
    picture = store.add_user(conversation.id, None, "x", [make_picture()]).attachments[0]
    for directory in (store.directory, store.files.originals_dir, store.files.previews_dir):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(picture.path.stat().st_mode) == 0o600


def test_full_disk_is_one_sentence_and_nothing_is_half_written(store):
    conversation = store.create("a")
    with store._database.read() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="disk is full"):
        store.add_user(conversation.id, None, "x" * 200_000)
    assert store.path(conversation.id) == []
    with store._database.read() as db:
        db.execute("PRAGMA max_page_count = 1000000")
    assert store.add_user(conversation.id, None, "fits again").text == "fits again"


def test_full_disk_for_a_picture(store, make_picture, monkeypatch):
    def no_space(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(attachments.os, "fsync", no_space)
    conversation = store.create("a")
    with pytest.raises(StoreError, match="disk is full"):
        store.add_user(conversation.id, None, "x", [make_picture()])
    assert list(store.files.originals_dir.iterdir()) == [] and store.path(conversation.id) == []


def test_threads_write_at_once(store):
    conversation = store.create("a")
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for step in range(10):
                store.add_user(conversation.id, None, f"{number}-{step}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(store.siblings(store.path(conversation.id)[0].id)) == 40


WRITER = """
import sys
from pathlib import Path
from app.store import Store, Answer
store = Store(Path(sys.argv[1]))
conversation = store.create("killed")
parent = None
for number in range(100000):
    user = store.add_user(conversation.id, parent, f"q{number}")
    answer = store.add_answer(conversation.id, user.id)
    store.update_answer(answer.id, Answer(f"a{number}", "", "done", "stop"))
    parent = answer.id
    print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_kill_while_writing_loses_nothing_that_was_shown(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "d")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 20:
            break
    os.kill(process.pid, signal.SIGKILL)
    shown = [int(line) for line in process.stdout.read().splitlines() if line.strip().isdigit()]
    process.wait()
    store = Store(tmp_path / "d")
    conversation = store.list()[0]
    texts = [message.text for message in store.path(conversation.id)]
    last = max([20, *shown])
    for number in range(last + 1):
        assert texts[2 * number : 2 * number + 2] == [f"q{number}", f"a{number}"]
    store.close()
