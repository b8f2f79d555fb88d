"""Actions of the page without a page: two tabs, switching, stale tabs, restarts."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import png_bytes
from fake_engine import Plan, PlanLine

from app.chats import Chats
from app.opening import ModelStatus
from app.store import ReplySettings
from app.ui.handlers import WINDOW_MESSAGES, Handlers, parse_place
from app.ui.memory import Usage, memory_panel


@pytest.fixture
def handlers(chats: Chats) -> Handlers:
    return Handlers(chats)


def until(condition, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def send(handlers, text, place="", page="tab", files=()):
    return handlers.send(page, place, {"text": text, "files": list(files)}, ReplySettings())


def texts(change):
    return [entry["content"][-1] for entry in change["transcript"]]


def merged(changes):
    """What a page shows after a stream of changes."""
    shown = {}
    for change in changes:
        shown |= change
    return shown


def test_sending_shows_the_message_and_then_the_answer(handlers, engine):
    handlers.arrive("tab", "")
    first = send(handlers, "hello queue")
    assert first["taken"] and first["answering"] and first["follow"] and texts(first) == ["hello queue"]
    engine.go.set()
    shown = merged(handlers.follow("tab", first["place"]))
    assert not shown["answering"] and shown["live"] == [] and shown["live_line"] == ""
    assert texts(shown)[-1].startswith("You said: hello")
    assert shown["list"][0][0] == "hello queue" and shown["chosen"] == parse_place(shown["place"])[0]


def test_an_answer_that_ends_while_it_is_shown_leaves_no_stale_page(handlers, chats, monkeypatch):
    real = chats.path

    def late(conversation_id):
        generation = chats.running(conversation_id)
        if generation is not None:
            until(lambda: generation.finished)
        return real(conversation_id)

    monkeypatch.setattr(chats, "path", late)
    first = send(handlers, "hello")
    assert not first["answering"] and first["place"].endswith(f":{chats.store.list()[0].revision}")
    assert "notice" not in send(handlers, "again", first["place"])


def test_refusals_keep_what_was_typed(handlers, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"nonsense")
    for change in (send(handlers, " "), send(handlers, "x", files=[tmp_path / "bad.png"])):
        assert "taken" not in change and change["notice"]
    assert handlers.chats.store.list() == []
    (tmp_path / "good.png").write_bytes(png_bytes())
    shown = send(handlers, "x", files=[tmp_path / "good.png"])
    assert shown["transcript"][0]["content"][0]["alt_text"] == "good.png"


def test_a_second_message_during_an_answer_is_refused(handlers):
    first = send(handlers, "forever")
    again = send(handlers, "more", first["place"])
    assert "still being written" in again["notice"] and "taken" not in again
    handlers.stop("tab", first["place"])


def test_switching_changes_only_what_is_watched(handlers):
    first = send(handlers, "forever")
    stream = handlers.follow("tab", first["place"])
    next(stream)
    other = handlers.new("tab")
    assert other["transcript"] == [] and other["live"] == [] and other["place"] == ""
    rest = merged(stream)
    assert rest == {"live": [], "live_line": ""}
    identity = parse_place(first["place"])[0]
    assert handlers.chats.running(identity) is not None
    back = handlers.select("tab", identity)
    assert back["answering"] and back["follow"]
    handlers.stop("tab", back["place"])


def test_two_tabs_watch_one_answer(handlers):
    first = send(handlers, "long", page="one")
    identity = parse_place(first["place"])[0]
    handlers.select("two", identity)
    assert (
        merged(handlers.follow("one", first["place"]))["transcript"]
        == (merged(handlers.follow("two", first["place"]))["transcript"])
    )


def test_a_newer_stream_of_a_page_ends_the_older(handlers):
    first = send(handlers, "forever")
    old = handlers.follow("tab", first["place"])
    next(old)
    new = handlers.follow("tab", first["place"])
    next(new)
    assert len(list(old)) == 1
    handlers.stop("tab", first["place"])
    assert not merged(new)["answering"]


def test_a_stale_tab_is_shown_the_news_instead_of_overwriting(handlers):
    first = send(handlers, "one", page="one")
    done = merged(handlers.follow("one", first["place"]))
    stale = send(handlers, "two", first["place"], page="two")
    assert "changed elsewhere" in stale["notice"] and "taken" not in stale
    assert stale["place"] == done["place"] and len(stale["transcript"]) == 2


def test_pulse_brings_news_and_nothing_else(handlers):
    handlers.arrive("one", "")
    handlers.arrive("two", "")
    first = send(handlers, "one", page="one")
    done = merged(handlers.follow("one", first["place"]))
    news = handlers.pulse("two", "")
    assert news["list"][0][0] == "one" and "transcript" not in news
    assert handlers.pulse("two", "") == {}
    assert handlers.pulse("one", done["place"]) == {}


def test_pulse_after_a_restart_of_the_app(handlers, chats):
    first = send(handlers, "hello")
    merged(handlers.follow("tab", first["place"]))
    restarted = Handlers(chats)
    shown = restarted.pulse("tab", first["place"])
    assert texts(shown)[0] == "hello"
    assert "transcript" not in restarted.pulse("tab", shown["place"])


def test_pulse_takes_up_an_unwatched_answer(handlers, chats):
    first = send(handlers, "forever")
    assert Handlers(chats).pulse("other", first["place"])["follow"]
    handlers.stop("tab", first["place"])


def test_a_deleted_conversation_leaves_every_tab(handlers):
    first = send(handlers, "hello", page="one")
    merged(handlers.follow("one", first["place"]))
    handlers.arrive("two", first["place"])
    assert handlers.delete("one", first["place"])["place"] == ""
    gone = handlers.pulse("two", first["place"])
    assert "deleted elsewhere" in gone["notice"] and gone["place"] == "" and gone["transcript"] == []
    assert "no longer exists" in send(handlers, "x", first["place"], page="two")["notice"]


def test_stop_at_once_and_continue(handlers):
    first = send(handlers, "slow")
    stream = handlers.follow("tab", first["place"])
    until(lambda: "Reading" in next(stream)["live_line"])
    started = time.monotonic()
    stopped = handlers.stop("tab", first["place"])
    assert time.monotonic() - started < 5  # of 30 s that the reading takes
    assert not stopped["answering"] and stopped["go_on"] and "stopped" in texts(stopped)[-1]
    last = merged(stream)
    assert last["live_line"] == "" and not last["answering"]
    resumed = handlers.go_on("tab", last["place"])
    assert resumed["answering"]
    handlers.stop("tab", resumed["place"])


def test_versions(handlers):
    first = send(handlers, "hello")
    shown = merged(handlers.follow("tab", first["place"]))
    again = handlers.regenerate("tab", shown["place"], 1)
    shown = merged(handlers.follow("tab", again["place"]))
    assert shown["versions"] == "2 / 2"
    assert handlers.show_version("tab", shown["place"], -1)["versions"] == "1 / 2"
    place = f"{parse_place(shown['place'])[0]}:"
    edited = handlers.edit("tab", place, 0, "a <\u2060b>")
    shown = merged(handlers.follow("tab", edited["place"]))
    assert handlers.chats.path(parse_place(place)[0])[0].text == "a <b>"


def test_rename_and_settings(handlers):
    first = send(handlers, "hello")
    shown = merged(handlers.follow("tab", first["place"]))
    renamed = handlers.rename("tab", shown["place"], "  Better   name ")
    assert renamed["title"] == "Better name" and renamed["list"][0][0] == "Better name"
    assert "needs a name" in handlers.rename("tab", renamed["place"], " ")["notice"]
    wishes = ReplySettings("short", 0.3, 10, 1, True)
    configured = handlers.configure("tab", renamed["place"], wishes)
    assert handlers.arrive("tab", configured["place"])["settings"] == wishes
    assert handlers.configure("tab", "", wishes) == {}
    again = handlers.send("tab", configured["place"], {"text": "x"}, ReplySettings("other"))
    assert "notice" not in again
    assert handlers.chats.store.get(parse_place(again["place"])[0]).settings.system == "other"
    merged(handlers.follow("tab", again["place"]))


def test_only_the_last_messages_are_shown(handlers, chats):
    conversation = chats.store.create("long")
    parent = None
    for number in range(WINDOW_MESSAGES + 10):
        parent = chats.store.add_user(conversation.id, parent, str(number)).id
    shown = handlers.select("tab", conversation.id)
    assert len(shown["transcript"]) == WINDOW_MESSAGES and shown["older"]
    older = handlers.older("tab", shown["place"])
    assert len(older["transcript"]) == WINDOW_MESSAGES + 10 and not older["older"]


def test_search(handlers):
    merged(handlers.follow("tab", send(handlers, "about cats")["place"]))
    handlers.new("tab")
    merged(handlers.follow("tab", send(handlers, "about dogs")["place"]))
    assert [title for title, _ in handlers.search("tab", "CATS")["list"]] == ["about cats"]
    assert len(handlers.search("tab", "")["list"]) == 2


def test_memory_panel_opens_changes_and_closes(handlers):
    handlers.arrive("tab", "")
    assert "memory" not in handlers.pulse("tab", "")
    shown = handlers.toggle_memory("tab")["memory"]
    for words in ("dense weights", "29 MiB", "in the checkpoint files", "limited by &lt;memory&gt;", "This process"):
        assert words in shown
    first = send(handlers, "hello")
    done = merged(handlers.follow("tab", first["place"]))
    assert "1,801 of 4,096 tokens" in handlers.pulse("tab", done["place"])["memory"]
    assert handlers.toggle_memory("tab") == {"memory": ""}
    assert "memory" not in handlers.pulse("tab", done["place"])


def test_memory_panel_says_where_spread_experts_were_found():
    usage = Usage(1 << 30, 0, 0.0, 0, 4096, SimpleNamespace(held=3, from_ram=1_000, from_disk=0, hit_rate=0.75))
    spread = replace(
        Plan(), lines=(PlanLine("experts", "GPU", 1 << 30, "used most"), *Plan().lines), budget_bytes=3 << 30
    )
    shown = memory_panel(spread, usage, ModelStatus("ready", "fake"))
    assert "75 %" in shown and "1,000 came from RAM, 0 from disk" in shown
    assert "1.0 GiB of 3.0 GiB" in shown and "38 MiB of 57 MiB" in shown
    assert "Experts at hand" not in memory_panel(spread, replace(usage, experts=None), ModelStatus("ready", "fake"))


def test_export_and_import_through_the_page(handlers, tmp_path):
    first = send(handlers, "hello")
    done = merged(handlers.follow("tab", first["place"]))
    identity = parse_place(done["place"])[0]
    assert f'href="export/{identity}"' in done["export"]
    handlers.chats.export(identity, tmp_path / "one.zip", with_state=True)
    imported = handlers.import_("tab", str(tmp_path / "one.zip"))
    assert texts(imported) == texts(done) and parse_place(imported["place"])[0] != identity
    assert not (tmp_path / "one.zip").exists() and len(imported["list"]) == 2
    (tmp_path / "bad.zip").write_bytes(b"x")
    assert "not a whole zip" in handlers.import_("tab", str(tmp_path / "bad.zip"))["notice"]
    assert handlers.import_("tab", None) == {}


def test_restored_tokens_are_shown(handlers):
    handlers.arrive("tab", "")
    shown = merged(handlers.follow("tab", send(handlers, "restore notice")["place"]))
    assert "1,200 tokens restored in 45 ms" in texts(shown)[-1] and "read again" in texts(shown)[-1]
