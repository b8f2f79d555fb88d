"""Going on with an answer that broke off gives exactly what the unbroken answer would have been."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import BadRequest, Engine, EngineSettings, Finished, Message, ReplyOptions, Stats, Text

DEMO = Path(__file__).parents[2] / "assets" / "demo"
ASK = Message("user", "Tell me something about the sea.")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    settings = EngineSettings(context_tokens=512, state_dir=tmp_path_factory.mktemp("state"))
    opened = Engine.open(DEMO, settings)
    yield opened
    opened.close()


def reply(engine, name, messages, **options):
    events = list(engine.start(name).reply(messages, ReplyOptions(temperature=0, **options)))
    return "".join(e.text for e in events if isinstance(e, Text)), events[-2], events[-1]


@pytest.mark.parametrize("first", [1, 3, 7, 12])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_continued_equals_unbroken(engine, first, elsewhere):
    whole, _, ending = reply(engine, "whole", [ASK], max_tokens=24)
    name = f"cut {first} {elsewhere}"
    part, _, cut = reply(engine, name, [ASK], max_tokens=first)
    assert cut == Finished("length") and whole.startswith(part)
    engine.start(name).save()
    if elsewhere:  # another conversation, or the same after a restart: from saved state
        engine.start(name).close()
    rest, stats, end = reply(engine, name, [ASK, Message("assistant", part)], max_tokens=24 - first, continue_last=True)
    assert part + rest == whole and end == ending
    assert isinstance(stats, Stats) and stats.reused_tokens + stats.restored_tokens == stats.prompt_tokens - 1
    # The whole answer is now known by its ids, so the next turn reads only what is new.
    turn = [ASK, Message("assistant", whole), Message("user", "Thank you!")]
    _, stats, _ = reply(engine, name, turn, max_tokens=2)
    assert stats.reused_tokens + stats.restored_tokens >= stats.prompt_tokens - 16


def test_only_an_answer_can_be_continued(engine):
    for messages in ([], [ASK], [ASK, Message("assistant", "")]):
        with pytest.raises(BadRequest, match="no answer to continue"):
            reply(engine, "odd", messages, continue_last=True)
    with pytest.raises(BadRequest, match="thinks first"):
        reply(engine, "odd", [ASK, Message("assistant", "x", thinking="y")], continue_last=True)
