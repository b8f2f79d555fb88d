"""The worker: a generation belongs to its message, stops at once, and never loses text that was shown."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from fake_engine import FakeEngine, Info

from app.chats import CONTINUE_TEXT, Chats
from app.opening import OpeningModel
from app.refusals import Busy, ChangedElsewhere, Refusal, StoreError
from app.store import ReplySettings, Store
from engine.errors import BadCheckpoint


def until(condition, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def finish(generation):
    until(lambda: generation.finished)
    return generation


def test_a_message_is_answered_and_stored(chats, engine):
    wishes = ReplySettings(system="be brief", temperature=0.0, max_tokens=50, seed=3, thinking=False)
    generation = finish(chats.send(None, "hello think", settings=wishes))
    user, answer = chats.path(generation.conversation_id)
    assert (user.text, answer.text, answer.thinking) == (
        "hello think", "You said: hello think", "Let me ponder.",
    )  # fmt: skip
    assert (answer.state, answer.finish_reason, answer.stats["prompt_tokens"]) == ("done", "stop", 1800)
    assert [message.role for message in engine.asked[0]] == ["system", "user"]
    options = engine.options[0]
    assert (options.temperature, options.max_tokens, options.seed, options.thinking) == (0.0, 50, 3, False)
    assert chats.store.get(generation.conversation_id).title == "hello think"


def test_the_prompt_is_the_whole_path(chats, engine, make_picture):
    first = finish(chats.send(None, "one", [make_picture()]))
    finish(chats.send(first.conversation_id, "two"))
    asked = engine.asked[-1]
    assert [message.text for message in asked] == ["one", "You said: one I see 1 picture.", "two"]
    assert isinstance(asked[0].images[0].source, Path) and asked[0].images[0].source.is_file()


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_message_is_refused_kindly(chats, text):
    with pytest.raises(Refusal, match="Write something"):
        chats.send(None, text)
    assert chats.store.list() == []


def test_a_picture_alone_is_a_message(chats, make_picture):
    generation = finish(chats.send(None, "", [make_picture()]))
    assert chats.store.get(generation.conversation_id).title == "Picture dot.png"


def test_stop_during_a_long_prefill_is_immediate(chats, engine):
    generation = chats.send(None, "slow")
    until(lambda: generation.snapshot().phase == "reading")
    started = time.monotonic()
    assert chats.stop(generation.conversation_id)
    assert generation.finished and time.monotonic() - started < 5  # of 30 s that the reading takes
    assert chats.path(generation.conversation_id)[-1].state == "stopped"
    follow_up = finish(chats.send(generation.conversation_id, "hello"))
    assert chats.path(follow_up.conversation_id)[-1].state == "done"
    until(lambda: engine.at_once == 0)


def test_stop_keeps_the_text(chats):
    generation = chats.send(None, "forever")
    until(lambda: generation.text)
    chats.stop(generation.conversation_id)
    message = chats.path(generation.conversation_id)[-1]
    assert (message.state, message.finish_reason) == ("stopped", "cancelled")
    assert message.text.startswith("word0") and message.text == generation.text
    assert not chats.stop(generation.conversation_id)


def test_one_answer_per_conversation_many_conversations(chats, engine):
    first = chats.send(None, "forever")
    second = chats.send(None, "forever")
    with pytest.raises(Busy):
        chats.send(first.conversation_id, "again")
    until(lambda: engine.most_at_once == 2)
    chats.stop(first.conversation_id)
    before = len(second.text)
    until(lambda: len(second.text) > before)
    assert chats.running(second.conversation_id) is second
    chats.stop(second.conversation_id)


def test_errors_become_the_message_and_keep_the_conversation(chats):
    generation = finish(chats.send(None, "fail"))
    message = chats.path(generation.conversation_id)[-1]
    assert message.state == "error" and message.error.startswith("The conversation has 9,000 tokens")
    odd = finish(chats.send(None, "break"))
    assert chats.path(odd.conversation_id)[-1].error == "The answer failed: unexpected trouble."
    finish(chats.send(generation.conversation_id, "hello"))
    assert chats.path(generation.conversation_id)[-1].text == "You said: fail\n\nhello"


def test_regenerate_and_edit_make_siblings(chats, make_picture):
    first = finish(chats.send(None, "one", [make_picture()]))
    finish(chats.regenerate(first.conversation_id))
    path = chats.path(first.conversation_id)
    assert (path[-1].sibling_index, path[-1].num_siblings) == (1, 2)
    finish(chats.edit(first.conversation_id, path[0].id, "better"))
    path = chats.path(first.conversation_id)
    assert path[0].text == "better" and path[0].num_siblings == 2 and path[0].attachments[0].name == "dot.png"
    assert path[1].text == "You said: better I see 1 picture."
    with pytest.raises(Refusal, match="own messages"):
        chats.edit(first.conversation_id, path[1].id, "x")
    with pytest.raises(ChangedElsewhere):
        chats.regenerate(first.conversation_id, revision=1)


def test_go_on_asks_for_the_rest_or_again(chats, engine):
    generation = chats.send(None, "forever")
    until(lambda: generation.text)
    chats.stop(generation.conversation_id)
    finish(chats.go_on(generation.conversation_id))
    assert engine.asked[-1][-1].text == CONTINUE_TEXT
    silent = chats.send(None, "slow")
    until(lambda: silent.snapshot().phase == "reading")
    chats.stop(silent.conversation_id)
    again = chats.go_on(silent.conversation_id)
    assert chats.path(silent.conversation_id)[-1].num_siblings == 2
    chats.stop(again.conversation_id)


def test_an_interrupted_answer_can_go_on_after_a_restart(tmp_path, engine):
    store = Store(tmp_path / "d")
    conversation = store.create("x")
    user = store.add_user(conversation.id, None, "q")
    store.add_answer(conversation.id, user.id)
    store.close()
    store = Store(tmp_path / "d")
    chats = Chats(store, OpeningModel("m", lambda progress: engine).start())
    assert chats.path(conversation.id)[-1].state == "interrupted"
    finish(chats.go_on(conversation.id))
    assert chats.path(conversation.id)[-1].text == "You said: q"
    chats.close()
    store.close()


def test_partial_text_is_saved_while_streaming(chats, monkeypatch):
    monkeypatch.setattr("app.chats.SAVE_EVERY_S", 0.05)
    generation = chats.send(None, "forever")
    until(lambda: chats.store.message(generation.message_id).text)
    assert chats.store.message(generation.message_id).state == "streaming"
    chats.stop(generation.conversation_id)


def test_full_disk_loses_no_shown_text(chats, monkeypatch):
    monkeypatch.setattr("app.chats.SAVE_EVERY_S", 0.02)
    real = chats.store.update_answer
    full = threading.Event()

    def update(message_id, answer):
        if full.is_set():
            raise StoreError("The disk is full, so the conversation cannot be saved; free some space.")
        real(message_id, answer)

    monkeypatch.setattr(chats.store, "update_answer", update)
    generation = chats.send(None, "long")
    until(lambda: generation.text)
    full.set()
    until(lambda: "disk is full" in generation.warning)
    finish(generation)
    shown = chats.path(generation.conversation_id)[-1]
    assert shown.text.endswith("word79 ") and "not saved yet" in shown.error
    full.clear()
    chats.save_leftovers()
    saved = chats.store.message(generation.message_id)
    assert (saved.text, saved.state, saved.error) == (shown.text, "done", "")


def test_a_full_disk_refuses_a_new_message_and_leaves_nothing(chats, monkeypatch):
    def no_room(*values, **options):
        raise StoreError("The disk is full.")

    monkeypatch.setattr(chats.store, "add_user", no_room)
    with pytest.raises(StoreError, match="full"):
        chats.send(None, "hello")
    assert chats.store.list() == [] and not chats.busy_ids()


def test_delete_while_answering(chats, engine):
    generation = chats.send(None, "forever")
    until(lambda: generation.text)
    chats.delete(generation.conversation_id)
    assert chats.store.list() == []
    until(lambda: engine.at_once == 0)


def test_a_text_model_refuses_pictures(store, make_picture):
    engine = FakeEngine(model_info=Info(sees_images=False))
    opening = OpeningModel("m", lambda progress: engine).start()
    opening.wait()
    with pytest.raises(Refusal, match="reads text only"):
        Chats(store, opening).send(None, "look", [make_picture()])


def test_messages_wait_for_the_model(store, engine):
    go = threading.Event()

    def slow_open(on_progress):
        go.wait(60)
        return engine

    opening = OpeningModel("m", slow_open).start()
    chats = Chats(store, opening)
    first, second = chats.send(None, "one"), chats.send(None, "two")
    assert first.snapshot().phase == "model"
    chats.stop(second.conversation_id)
    go.set()
    finish(first)
    assert chats.path(first.conversation_id)[-1].text == "You said: one"
    assert len(engine.asked) == 1
    chats.close()


def test_a_model_that_does_not_open_answers_with_its_sentence(store):
    def fail(on_progress):
        raise BadCheckpoint("'m' has no config.json.")

    told = threading.Event()
    opening = OpeningModel("m", fail)
    opening.on_failure = lambda sentence: told.set()
    opening.start()
    assert told.wait(60) and opening.status.error == "'m' has no config.json."
    chats = Chats(store, opening)
    generation = finish(chats.send(None, "hello"))
    assert chats.path(generation.conversation_id)[-1].error == "'m' has no config.json."


def test_idle_sessions_are_closed(chats, engine, monkeypatch):
    monkeypatch.setattr("app.chats.LIVE_SESSIONS", 4)
    for number in range(7):
        finish(chats.send(None, f"hello {number}"))
        until(lambda: not chats._threads)
    assert len(engine.sessions) <= 4


def test_deleting_forgets_the_saved_state_through_the_engine(chats, engine):
    generation = chats.send(None, "forever")
    until(lambda: generation.text)
    chats.delete(generation.conversation_id)
    until(lambda: engine.deleted == [generation.conversation_id])
    assert engine.at_once == 0  # only after the stopped answer had left the engine, which saves at its end


@pytest.mark.parametrize("fails", [False, True])
def test_deleting_without_an_engine_deletes_on_the_disk(store, monkeypatch, fails):
    api = pytest.importorskip("engine.api")
    gone = []
    monkeypatch.setattr(api, "delete_saved", lambda folder, name: gone.append((folder, name)))
    (store.directory / "state").mkdir()
    go = threading.Event()

    def never(on_progress):
        if fails:
            raise BadCheckpoint("'m' has no config.json.")
        go.wait(60)
        return FakeEngine()

    chats = Chats(store, OpeningModel("m", never).start())
    conversation = store.create("old")
    chats.delete(conversation.id)
    until(lambda: gone == [(store.directory / "state", conversation.id)])
    go.set()
    chats.close()


def test_state_of_conversations_that_are_gone_is_swept(chats, monkeypatch):
    api = pytest.importorskip("engine.api")
    kept, gone = chats.store.create("kept"), []
    (chats.store.directory / "state").mkdir()
    saved = [api.SavedSegment("k", "m", 0, 5, 10, names) for names in ((kept.id,), (kept.id, "lost"), ())]
    monkeypatch.setattr(api, "list_saved", lambda folder: saved)
    monkeypatch.setattr(api, "delete_saved", lambda folder, name: gone.append(name))
    chats.sweep()
    assert gone == ["lost"]


def test_restored_tokens_and_notices_reach_the_answer(chats):
    generation = finish(chats.send(None, "restore notice"))
    live = generation.snapshot()
    assert (live.restored_tokens, live.restore_ms) == (1200, 45.0) and "read again" in live.notices[0]
    stats = chats.path(generation.conversation_id)[-1].stats
    assert stats["restored_tokens"] == 1200 and stats["notices"] == list(live.notices)


def test_a_stopped_answer_goes_on_behind_its_last_word(store):
    engine = FakeEngine(model_info=Info(thinks=False))
    chats = Chats(store, OpeningModel("m", lambda progress: engine).start())
    chats.model.wait()
    generation = chats.send(None, "forever")
    until(lambda: generation.text)
    chats.stop(generation.conversation_id)
    half = chats.path(generation.conversation_id)[-1].text
    more = finish(chats.go_on(generation.conversation_id))
    path = chats.path(generation.conversation_id)
    assert len(path) == 2 and path[-1].text == half + "and the rest." and path[-1].state == "done"
    assert more.message_id == generation.message_id
    assert engine.options[-1].continue_last and engine.asked[-1][-1].text == half
    chats.close()
