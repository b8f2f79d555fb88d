"""A conversation that was saved, closed and opened again goes on exactly as one that never was: bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.api import (
    Engine,
    EngineSettings,
    Finished,
    Image,
    Message,
    Notice,
    Prefill,
    ReplyOptions,
    Restored,
    Stats,
    Text,
)
from engine.generation import scheduler
from tests.support.oracle import OracleCase

FAMILIES = ("hy_v4_vl", "hy_v4", "deepseek_v4", "deepseek_v32", "glm_moe_dsa")
# Sizes the packed rows of the compact cache are made for.
COMPACT = {
    "hy_v4_vl": {
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128,
        "text_config.rope_parameters.mrope_section": [12, 10, 10],
    },
    "deepseek_v4_vision": {"head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128},
}  # fmt: skip
# Page edges, index_topk (32) and window (32) edges, compression (4 and 128) edges of the tiny checkpoints.
LENGTHS = (25, 31, 32, 33, 63, 64, 65, 127, 130)


@dataclass
class Answer:
    """One reply with everything that could differ."""

    text: str = ""
    logits: list[Tensor] = field(default_factory=list)
    restored: int = 0
    reused: int = 0
    read: int = 0
    notices: list[str] = field(default_factory=list)


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch, into: list[Tensor]) -> Iterator[None]:
    """Keep the logits every token was chosen from."""
    original = scheduler.next_tokens

    def keep(logits: Tensor, rows: Any) -> list[int | Exception]:
        into.extend(logits.clone())
        return original(logits, rows)

    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "next_tokens", keep)
        yield


def reply(
    engine: Engine, messages: list[Message], key: str, monkeypatch: pytest.MonkeyPatch, tokens: int = 5
) -> Answer:
    answer = Answer()
    with recorded(monkeypatch, answer.logits):
        for event in engine.start(key).reply(messages, ReplyOptions(temperature=0, max_tokens=tokens)):
            match event:
                case Text(text):
                    answer.text += text
                case Restored(count):
                    answer.restored = count
                case Notice(text):
                    answer.notices.append(text)
                case Stats():
                    answer.reused = event.reused_tokens
                    answer.read = event.prompt_tokens - event.reused_tokens - event.restored_tokens
                case Finished(reason):
                    assert reason in ("length", "stop")
    return answer


def same(one: Answer, other: Answer) -> None:
    assert one.text == other.text
    assert len(one.logits) == len(other.logits)
    assert all(torch.equal(a, b) for a, b in zip(one.logits, other.logits, strict=True))


def settings(state_dir: Path | None, chunk: int = 64) -> EngineSettings:
    return EngineSettings(device="cpu", state_dir=state_dir, prefill_chunk_tokens=chunk, cache_tokens=1024, threads=1)


def question(length: int, case: OracleCase, picture: bool) -> Message:
    # Letters the tokenizer never joins; the first ones differ, so that conversations of other lengths share no beginning.
    text = f"{length:03}"[::-1] + "".join("zqxj"[(7 * i + i * i) % 4] for i in range(length - 3))
    images = (Image(case.image_paths[length % 2]),) if picture and case.image_paths else ()
    return Message("user", text, images)


@pytest.mark.parametrize("family", FAMILIES)
def test_restored_conversation_is_the_one_that_was_never_closed(
    family: str, oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case(family)
    never, saving = Engine.open(case.path, settings(None)), Engine.open(case.path, settings(tmp_path))
    turns: dict[int, list[Message]] = {}
    wanted: dict[int, Answer] = {}
    for length in LENGTHS:
        messages = [question(length, case, picture=length in (33, 64))]
        answer = reply(never, messages, f"c{length}", monkeypatch)
        same(reply(saving, messages, f"c{length}", monkeypatch), answer)
        turns[length] = [*messages, Message("assistant", answer.text), Message("user", "and then?")]
        wanted[length] = reply(never, turns[length], f"c{length}", monkeypatch)
        assert wanted[length].reused > length
    never.close()
    saving.close()

    again = Engine.open(case.path, settings(tmp_path))
    for length, messages in turns.items():
        got = reply(again, messages, f"c{length}", monkeypatch)
        assert (got.restored, got.read) == (wanted[length].reused, wanted[length].read), length
        same(got, wanted[length])
        assert not got.notices
    again.close()


@pytest.mark.parametrize("family", COMPACT)
def test_pictures_in_the_compact_cache_resume_bit_for_bit(
    family: str, oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case(family, overrides=COMPACT[family])

    def opened(place: Path | None) -> Engine:
        return Engine.open(case.path, replace(settings(place), cache_layout="compact"))

    never, saving = opened(None), opened(tmp_path)
    assert {pool.packing for pool in never._runtime.described.layout.pools} >= {"index"}
    messages = [Message("user", "zqxj" * 9 + "?", (Image(case.image_paths[0]),))]
    first = reply(never, messages, "a", monkeypatch)
    same(reply(saving, messages, "a", monkeypatch), first)
    saving.close()
    follow_ups = [("and then?", ()), ("and this?", (Image(case.image_paths[1]),)), ("so?", ())]
    for text, images in follow_ups:  # each with an engine that has never seen the pictures before it
        messages = [*messages, Message("assistant", first.text), Message("user", text, images)]
        wanted, again = reply(never, messages, "a", monkeypatch), opened(tmp_path)
        got = reply(again, messages, "a", monkeypatch)
        again.close()
        assert got.restored == wanted.reused > 36 and not got.notices
        same(got, wanted)
        first = wanted
    never.close()


@pytest.mark.parametrize("family", ("hy_v4_vl", "deepseek_v4"))
def test_regenerate_and_edit_after_restart_reuse_what_comes_before(
    family: str, oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case(family)
    live = Engine.open(case.path, settings(tmp_path))
    start = [question(90, case, picture=True)]
    one = reply(live, start, "a", monkeypatch)
    second = [*start, Message("assistant", one.text), Message("user", "go on")]
    two = reply(live, second, "a", monkeypatch)
    edited = [*start, Message("assistant", one.text), Message("user", "stop it")]
    regenerated, changed = reply(live, second, "a", monkeypatch), reply(live, edited, "a", monkeypatch)
    assert regenerated.text == two.text
    live.close()

    again = Engine.open(case.path, settings(tmp_path))
    got = reply(again, second, "a", monkeypatch)
    assert got.restored > 90 and got.read < 60
    assert got.text == two.text
    got = reply(again, edited, "b", monkeypatch)
    assert got.restored > 90 and got.read < 60
    assert got.text == changed.text
    again.close()


def test_common_beginnings_are_shared_and_deleting_one_keeps_the_other(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.api import list_saved, verify_saved

    case = oracle_case("hy_v4")
    engine = Engine.open(case.path, settings(tmp_path))
    start = [question(100, case, picture=False)]
    one = reply(engine, start, "a", monkeypatch)
    engine.start("a").save()
    beginning = len(list_saved(tmp_path))
    for key in ("a", "b"):
        reply(engine, [*start, Message("assistant", one.text), Message("user", f"I am {key}")], key, monkeypatch)
        engine.start(key).save()
    saved = list_saved(tmp_path)
    shared = [s for s in saved if set(s.conversations) == {"a", "b"}]
    assert len(saved) == beginning + 2
    assert min(s.start for s in shared) == 0
    engine.delete("a")
    left = list_saved(tmp_path)
    assert {s.conversations for s in left} == {("b",)} and {s.start for s in left} >= {0}
    engine.delete("b")
    assert not list_saved(tmp_path) and not list(tmp_path.glob("*/*.kv"))
    assert not verify_saved(tmp_path)
    engine.close()


def test_stopped_answer_is_saved_and_continues(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("deepseek_v4")
    start = [question(70, case, picture=False)]

    def stopped(engine: Engine) -> list[Message]:
        session, text = engine.start("a"), ""
        for event in session.reply(start, ReplyOptions(temperature=0, max_tokens=200)):
            if isinstance(event, Text):
                text += event.text
                if len(text) > 8:
                    session.cancel()
        return [*start, Message("assistant", text), Message("user", "more")]

    never = Engine.open(case.path, settings(None))
    follow_up = stopped(never)
    wanted = reply(never, follow_up, "a", monkeypatch)
    never.close()
    saving = Engine.open(case.path, settings(tmp_path))
    follow_up_here = stopped(saving)
    saving.close()
    again = Engine.open(case.path, settings(tmp_path))
    got = reply(again, follow_up_here, "a", monkeypatch)
    assert got.restored > 70
    if follow_up_here == follow_up:  # a stop may take effect one token later
        assert got.restored == wanted.reused
        same(got, wanted)
    again.close()


def test_more_conversations_than_fit_are_parked_and_come_back(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("hy_v4")
    small = EngineSettings(device="cpu", state_dir=tmp_path, cache_tokens=192, threads=1, prefill_chunk_tokens=64)
    engine = Engine.open(case.path, small)
    chats = {f"c{n}": [question(80 + n, case, picture=False)] for n in range(5)}
    for key, messages in chats.items():
        answer = reply(engine, messages, key, monkeypatch)
        messages += [Message("assistant", answer.text), Message("user", "yes?")]
        engine.start(key).save()
    for key, messages in chats.items():
        got = reply(engine, messages, key, monkeypatch)
        assert got.restored + got.reused > 80, key
    engine._runtime.cache.check_integrity()
    engine.close()


def test_long_prompt_is_sealed_on_the_way(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.api import list_saved
    from engine.generation import scheduler

    monkeypatch.setattr(scheduler, "SEAL_EVERY_TOKENS", 128)
    case = oracle_case("glm_moe_dsa")
    engine = Engine.open(case.path, settings(tmp_path))
    session = engine.start("a")
    events = session.reply([question(600, case, picture=False)], ReplyOptions(temperature=0, max_tokens=2))
    for _ in events:
        pass
    session.save()
    stops = sorted(s.stop for s in list_saved(tmp_path))
    assert len(stops) >= 4 and stops[0] == 128
    engine.close()


def test_a_prompt_that_shares_a_beginning_goes_on_where_it_was_sealed_on_the_way(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.generation import scheduler

    monkeypatch.setattr(scheduler, "SEAL_EVERY_TOKENS", 100)
    case = oracle_case("deepseek_v4")
    messages = [question(400, case, picture=False)]
    edited = [replace(messages[0], text=messages[0].text[:390] + "another end")]
    never, saving = Engine.open(case.path, settings(None)), Engine.open(case.path, settings(tmp_path))
    reply(saving, messages, "a", monkeypatch)
    saving.close()
    wanted = reply(never, edited, "a", monkeypatch)
    never.close()
    again = Engine.open(case.path, settings(tmp_path))
    cache = again._runtime.cache
    for frontier in cache.layout.frontiers:  # what is not saved is not needed, whatever lies there
        cache.frontier(frontier.layer, frontier.name).fill_(torch.nan)
    monkeypatch.setattr(cache, "_clear_frontiers", lambda _: None)
    got = reply(again, edited, "b", monkeypatch)
    assert got.restored == 384  # the end of a chunk of 64, and of a window of 128
    same(got, wanted)
    again.close()


def test_a_prompt_stopped_on_the_way_is_kept_as_far_as_it_was_read(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("deepseek_v4")
    engine = Engine.open(case.path, settings(tmp_path))
    session, read = engine.start("a"), 0
    for event in session.reply([question(600, case, picture=False)], ReplyOptions(temperature=0, max_tokens=2)):
        if isinstance(event, Prefill) and event.done > 100:
            session.cancel()
        if isinstance(event, Prefill):
            read = event.done
    assert 100 < read < 600
    engine.close()
    again = Engine.open(case.path, settings(tmp_path))
    got = reply(again, [question(600, case, picture=False)], "a", monkeypatch)
    assert got.restored >= read
    again.close()


def test_answer_that_ended_in_the_middle_of_thinking(
    oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = oracle_case("deepseek_v32")
    never, saving = Engine.open(case.path, settings(None)), Engine.open(case.path, settings(tmp_path))
    assert never.model_info.thinks
    messages = [question(70, case, picture=False)]
    first = reply(never, messages, "a", monkeypatch)
    assert first.text == "" and len(first.logits) == 5  # all of it was reasoning
    same(reply(saving, messages, "a", monkeypatch), first)
    saving.close()
    follow_up = [*messages, Message("assistant", ""), Message("user", "and then?")]
    wanted = reply(never, follow_up, "a", monkeypatch)
    never.close()
    again = Engine.open(case.path, settings(tmp_path))
    got = reply(again, follow_up, "a", monkeypatch)
    assert got.restored == wanted.reused > 60
    same(got, wanted)
    again.close()
