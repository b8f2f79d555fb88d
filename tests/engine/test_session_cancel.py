"""Stopping a reply before its first event: nothing hangs, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import BadRequest, Engine, EngineSettings, Finished, Message, ReplyOptions

DEMO = Path(__file__).parents[2] / "assets" / "demo"
ASK = [Message("user", "Hello!")]


@pytest.fixture(scope="module")
def engine():
    opened = Engine.open(DEMO, EngineSettings(context_tokens=512))
    yield opened
    opened.close()


def test_a_cancel_while_a_reply_is_prepared_is_not_lost(engine, monkeypatch):
    session = engine.start("early")
    original = Engine._prompt

    def stop_then_build(self, *values):
        session.cancel()
        with pytest.raises(BadRequest, match="still answering"):
            session.reply(ASK)
        return original(self, *values)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_prompt", stop_then_build)
        events = list(session.reply(ASK, ReplyOptions(max_tokens=20)))
    assert events[-1] == Finished("cancelled")
    assert list(session.reply(ASK, ReplyOptions(max_tokens=2)))[-1] == Finished("length")


def test_a_reply_that_cannot_be_prepared_leaves_the_session_free(engine):
    session = engine.start("odd")
    with pytest.raises(BadRequest):
        session.reply([])
    assert list(session.reply(ASK, ReplyOptions(max_tokens=2)))[-1] == Finished("length")


def test_a_reply_nobody_reads_is_closed(engine):
    session = engine.start("unread")
    session.reply(ASK).close()
    assert list(session.reply(ASK, ReplyOptions(max_tokens=2)))[-1] == Finished("length")
