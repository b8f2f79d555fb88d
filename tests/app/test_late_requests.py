"""Requests of one page that overtake each other: news that come late never undo what the person has just done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import png_bytes

from app.chats import Chats
from app.store import ReplySettings
from app.ui import handlers as handlers_module
from app.ui.handlers import Handlers
from app.ui.views import parse_place


@pytest.fixture
def handlers(chats: Chats) -> Handlers:
    made = Handlers(chats)
    made.arrive("tab", "")
    return made


def send(handlers: Handlers, text: str, place: str = "", files: tuple[Any, ...] = ()) -> dict[str, Any]:
    return handlers.send("tab", place, {"text": text, "files": list(files)}, ReplySettings())


def merged(changes: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for change in changes:
        shown |= change
    return shown


def while_it_reads(
    monkeypatch: pytest.MonkeyPatch, chats: Chats, act: Callable[[], Any], when: Callable[[], bool]
) -> list[threading.Thread]:
    """Lets the person act in another thread while the messages of a conversation are read for the page."""
    real = chats.path
    threads: list[threading.Thread] = []

    def path(conversation_id: str) -> Any:
        found = real(conversation_id)
        if not threads and when():
            threads.append(threading.Thread(target=act))
            threads[0].start()
            threads[0].join(0.1)  # it may have to wait until the page is told
        return found

    monkeypatch.setattr(chats, "path", path)
    return threads


@pytest.mark.parametrize("leave", ["new", "select"])
def test_leaving_is_not_undone_by_requests_under_way(handlers, leave):
    other = merged(handlers.follow("tab", send(handlers, "the other one")["place"]))["place"]
    handlers.new("tab")
    old = send(handlers, "forever")["place"]
    to = handlers.new("tab")["place"] if leave == "new" else handlers.select("tab", parse_place(other)[0])["place"]
    news = handlers.pulse("tab", old)
    assert news["place"] == to and not news["follow"]
    assert merged(handlers.follow("tab", old)).get("place", to) == to
    assert "place" not in handlers.configure("tab", old, ReplySettings("changed while leaving"))
    stopped = handlers.stop("tab", old)
    assert "place" not in stopped and handlers.pulse("tab", to) == {}


def test_a_message_typed_at_once_goes_where_the_person_went(handlers):
    old = send(handlers, "forever")["place"]
    settings = ReplySettings("of the old one")
    old = handlers.configure("tab", old, settings)["place"]
    handlers.new("tab")
    fresh = handlers.send("tab", old, {"text": "another one"}, settings)
    assert fresh["taken"] and fresh["title"] == "another one" and fresh["settings"] == ReplySettings()
    merged(handlers.follow("tab", fresh["place"]))
    handlers.select("tab", parse_place(fresh["place"])[0])
    again = send(handlers, "more", old)
    assert again["taken"] and again["title"] == "another one" and len(again["transcript"]) >= 3
    handlers.stop("tab", old)


def test_a_first_message_is_not_hidden_by_a_request_under_way(handlers):
    first = send(handlers, "hello")
    late = handlers.pulse("tab", "")
    assert late["place"].startswith(parse_place(first["place"])[0]) and late["title"] == "hello"
    merged(handlers.follow("tab", ""))
    assert handlers.views.of("tab").conversation_id == parse_place(first["place"])[0]


def test_leaving_while_the_end_of_an_answer_is_read(handlers, chats, monkeypatch):
    first = send(handlers, "hello")
    identity = parse_place(first["place"])[0]
    threads = while_it_reads(monkeypatch, chats, lambda: handlers.new("tab"), lambda: chats.running(identity) is None)
    shown = merged(handlers.follow("tab", first["place"]))
    threads[0].join(5)
    assert {**shown, **handlers.pulse("tab", shown["place"])}["place"] == ""


def test_an_ended_answer_on_its_way_does_not_stay_on_a_page_that_moved(handlers):
    first = send(handlers, "hello")
    stream = handlers.follow("tab", first["place"])
    for change in stream:
        if "place" in change:
            break
    handlers.new("tab")
    assert merged(stream)["place"] == ""


def test_new_while_pictures_are_read(handlers, monkeypatch, tmp_path):
    (tmp_path / "good.png").write_bytes(png_bytes())
    place = merged(handlers.follow("tab", send(handlers, "hello")["place"]))["place"]
    real = handlers_module.read_uploads
    monkeypatch.setattr(handlers_module, "read_uploads", lambda files: (handlers.new("tab"), real(files))[1])
    sent = send(handlers, "look", place, (tmp_path / "good.png",))
    assert sent["taken"] and "place" not in sent and handlers.pulse("tab", "").get("place", "") == ""
    assert len(handlers.chats.path(parse_place(place)[0])) == 4


def test_the_next_message_need_not_wait_until_the_page_has_heard_of_the_end(handlers):
    first = send(handlers, "hello")
    ended = merged(handlers.follow("tab", first["place"]))
    assert ended["place"] != first["place"]
    assert send(handlers, "again", first["place"])["taken"]


def test_what_somebody_may_be_typing_is_not_sent_again(handlers, chats):
    first = send(handlers, "hello")
    ended = merged(handlers.follow("tab", first["place"]))
    assert ended["place"] and "settings" not in ended and "title" not in ended
    again = send(handlers, "forever", ended["place"])
    assert "settings" not in handlers.stop("tab", again["place"])
    ended = merged(handlers.follow("tab", again["place"]))
    identity = parse_place(ended["place"])[0]
    chats.store.rename(identity, "elsewhere", None)
    news = handlers.pulse("tab", ended["place"])
    assert news["title"] == "elsewhere" and news["settings"] == ReplySettings()
