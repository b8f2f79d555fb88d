"""Answers through the scheduler: cancelling, reuse, little room, ends of answers, and faults that hurt nobody else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from engine.api import (
    BadImage,
    BadRequest,
    Engine,
    EngineError,
    Finished,
    Image,
    Message,
    Prefill,
    PromptTooLong,
    ReplyOptions,
    Session,
    Text,
)
from engine.generation import scheduler
from engine.generation.scheduler import Scheduler
from engine.model.transformer import Transformer
from tests.engine.helpers import GREEDY, Answer, ask, assistant, check_cache, is_one_sentence, user
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
GetEngine = Callable[..., Engine]
SHORT = ReplyOptions(temperature=0.0, max_tokens=6)
LONG = "Please tell me everything about numbers, colours and shapes, in many words. " * 12


def options(tokens: int, **more: Any) -> ReplyOptions:
    return ReplyOptions(temperature=0.0, max_tokens=tokens, **more)


@pytest.fixture
def tiny(oracle_case: GetCase, open_engine: GetEngine) -> Callable[..., Engine]:
    """An engine of a random Hy4 checkpoint, which never ends an answer by itself soon."""

    def get(family: str = "hy_v4_vl", **settings: Any) -> Engine:
        settings = {"cache_tokens": 2048, "prefill_chunk_tokens": 32, **settings}
        return open_engine(oracle_case(family).path, **settings)

    return get


def steps_of(engine: Engine) -> int:
    return engine._scheduler.steps


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], tuple[threading.Event, threading.Event]]]:
    """`paused(n)`: forward pass n waits; returns (it is there, let it go)."""
    original, gates = Transformer.__call__, []

    def get(number: int) -> tuple[threading.Event, threading.Event]:
        there, go, calls = threading.Event(), threading.Event(), [0]
        gates.append(go)

        def call(self: Transformer, batch: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                there.set()
                assert go.wait(60)
            return original(self, batch)

        monkeypatch.setattr(Transformer, "__call__", call)
        return there, go

    yield get
    for go in gates:
        go.set()


# ---------------------------------------------------------------- cancel


@pytest.mark.parametrize("step", [1, 3])
def test_cancel_during_prefill_takes_one_chunk(tiny: GetEngine, paused: Any, step: int) -> None:
    engine, fresh = tiny(), tiny()
    session = engine.start("a")
    there, go = paused(step)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: Answer(list(session.reply([user(LONG)], SHORT))))
        assert there.wait(60)
        session.cancel()
        go.set()
        result = answer.result(60)
    assert result.reason == "cancelled" and result.text == ""
    assert steps_of(engine) == step, "more steps were made after the cancel"
    assert result.stats.new_tokens == 0 and result.stats.context_tokens == 32 * step
    again = ask(session, [user(LONG)], SHORT)
    assert again.stats.reused_tokens == 32 * step
    assert again.text == ask(fresh.start("a"), [user(LONG)], SHORT).text
    check_cache(engine)


def test_cancel_during_decode_takes_one_token(tiny: GetEngine, paused: Any) -> None:
    engine, fresh = tiny(), tiny()
    session = engine.start("a")
    there, go = paused(6)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: Answer(list(session.reply([user("Hello")], options(1000)))))
        assert there.wait(60)
        session.cancel()
        go.set()
        result = answer.result(60)
    assert result.reason == "cancelled"
    assert steps_of(engine) == 6 and result.stats.new_tokens == 6
    chat = [user("Hello"), assistant(result.text), user("more")]
    again = ask(session, chat, SHORT)
    assert again.stats.reused_tokens >= result.stats.context_tokens
    # Random bytes would be cut into other tokens; the other engine must read the same ones.
    fresh._scheduler.conversation("a").answers.update(engine._scheduler.conversation("a").answers)
    assert again.text == ask(fresh.start("a"), chat, SHORT).text
    assert ask(session, [user("Hello")], SHORT).text == ask(fresh.start("b"), [user("Hello")], SHORT).text
    check_cache(engine)


@pytest.mark.parametrize("events", [0, 1, 5])
def test_closing_the_iterator_early_cancels(tiny: GetEngine, events: int) -> None:
    engine = tiny()
    session = engine.start("a")
    reply = session.reply([user("Hello")], options(1000))
    for _ in range(events):
        next(reply)
    reply.close()  # type: ignore[attr-defined]
    assert ask(session, [user("Hello")], SHORT).reason == "length"
    check_cache(engine)


def test_dropping_the_iterator_cancels(tiny: GetEngine) -> None:
    engine = tiny()
    session = engine.start("a")
    for events in (0, 1):
        reply = session.reply([user("Hello")], options(1000))
        for _ in range(events):
            next(reply)
        del reply
        assert ask(session, [user("Hello")], SHORT).reason == "length"


def test_a_listener_that_stops_at_finished_frees_the_session(tiny: GetEngine) -> None:
    session = tiny().start("a")
    reply = session.reply([user("Hello")], SHORT)
    assert any(isinstance(event, Finished) for event in reply)  # any() stops right there
    assert ask(session, [user("Hello")], SHORT).reason == "length"


# ---------------------------------------------------------------- reuse


def test_the_second_turn_reads_only_what_is_new(open_engine: GetEngine) -> None:
    engine = open_engine()
    session = engine.start("a")
    first = ask(session, [user("Hello")], options(12))
    chat = [user("Hello"), assistant(first.text), user("And then?")]
    second = ask(session, chat, options(12))
    # The last sampled id was never fed, and an answer cut off by max_tokens is closed by the template.
    assert second.stats.reused_tokens >= first.stats.context_tokens
    alone = ask(open_engine().start("b"), chat, options(12))
    assert alone.stats.reused_tokens == 0 and alone.text == second.text


def test_a_regenerated_answer_reads_one_token(tiny: GetEngine) -> None:
    engine = tiny()
    session = engine.start("a")
    first, second = (ask(session, [user(LONG)], SHORT) for _ in range(2))
    assert second.stats.reused_tokens == first.stats.prompt_tokens - 1
    assert second.text == first.text


def test_an_edited_message_reuses_the_common_beginning(tiny: GetEngine) -> None:
    engine, fresh = tiny(), tiny()
    session = engine.start("a")
    ask(session, [user(LONG + "What is red?")], SHORT)
    edited = ask(session, [user(LONG + "What is blue?")], SHORT)
    assert 0.9 * edited.stats.prompt_tokens < edited.stats.reused_tokens < edited.stats.prompt_tokens
    assert edited.text == ask(fresh.start("b"), [user(LONG + "What is blue?")], SHORT).text
    shorter = ask(session, [user(LONG)], SHORT)
    assert shorter.text == ask(fresh.start("b"), [user(LONG)], SHORT).text


def test_another_picture_under_the_same_words_is_read_again(oracle_case: GetCase, tiny: GetEngine) -> None:
    one, two = oracle_case("hy_v4_vl").image_paths
    engine, fresh = tiny(), tiny()
    session = engine.start("a")
    for path in (one, two, one):
        chat = [user("What is this?", Image(path))]
        answer = ask(session, chat, SHORT)
        assert answer.text == ask(fresh.start(path.name), chat, SHORT).text
        assert answer.stats.reused_tokens < 20
    assert ask(session, [user("What is this?", Image(one.read_bytes()))], SHORT).stats.reused_tokens > 20


def test_prefill_is_told_and_adds_up(tiny: GetEngine) -> None:
    answer = ask(tiny().start("a"), [user(LONG)], SHORT)
    told = [e for e in answer.events if isinstance(e, Prefill)]
    assert told[-1].done == told[-1].total == answer.stats.prompt_tokens
    assert [e.done for e in told] == sorted(e.done for e in told)
    assert all(b.done - a.done <= 32 for a, b in itertools.pairwise(told))


# ---------------------------------------------------------------- little room


def test_more_conversations_than_pages_all_answer_as_alone(tiny: GetEngine) -> None:
    """Room for about three conversations; eight want to answer at once, and must be sent back and read again."""
    chats = [[user(f"{i} " + "word " * (10 * i))] for i in range(8)]
    wide, narrow = tiny(), tiny(cache_tokens=384)
    alone = [ask(wide.start(str(i)), chat, options(70)).text for i, chat in enumerate(chats)]
    sent_back: list[int] = []
    original = narrow._scheduler._requeue
    narrow._scheduler._requeue = lambda request: (sent_back.append(1), original(request))[1]  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: ask(narrow.start(str(i)), chats[i], options(70)), range(8)))
    assert [a.text for a in answers] == alone
    assert all(a.reason == "length" and a.stats.new_tokens == 70 for a in answers)
    assert sent_back, "nobody was preempted: the cache was not small enough"
    check_cache(narrow)


def test_the_conversation_idle_for_longest_is_dropped(tiny: GetEngine) -> None:
    engine = tiny(cache_tokens=448)
    text = "word " * 20
    for name in ("old", "new"):
        ask(engine.start(name), [user(name + text)], SHORT)
    ask(engine.start("old"), [user("old" + text)], SHORT)  # now "new" is the older one
    ask(engine.start("big"), [user("word " * 70)], SHORT)
    conversations = engine._scheduler._conversations
    assert conversations["new"].sequence is None and conversations["old"].sequence is not None
    again = ask(engine.start("new"), [user("new" + text)], SHORT)
    assert again.stats.reused_tokens == 0 and again.reason == "length"
    check_cache(engine)


def test_a_full_context_ends_the_answer(tiny: GetEngine) -> None:
    engine = tiny(cache_tokens=128)
    answer = ask(engine.start("a"), [user("word " * 10)], options(1000))
    assert answer.reason == "context_full"
    assert answer.stats.prompt_tokens + answer.stats.new_tokens == engine.plan.context_tokens == 128
    assert ask(engine.start("b"), [user("Hi")], SHORT).reason == "length"
    check_cache(engine)


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("tokens", [1, 2, 17])
def test_max_tokens(tiny: GetEngine, tokens: int) -> None:
    answer = ask(tiny().start("a"), [user("Hello")], options(tokens))
    assert answer.reason == "length" and answer.stats.new_tokens == tokens


def test_stop_strings_end_the_answer_and_are_not_part_of_it(open_engine: GetEngine) -> None:
    engine = open_engine()
    whole = ask(engine.start("a"), [user("Hello")], options(30)).text
    stop = whole[3:6]
    assert len(stop) == 3
    answer = ask(engine.start("b"), [user("Hello")], options(30, stop=("never", stop)))
    assert answer.reason == "stop" and answer.text == whole[: whole.index(stop)]
    chat = [user("Hello"), assistant(answer.text), user("Go on")]
    assert ask(engine.start("b"), chat, SHORT).text == ask(engine.start("c"), chat, SHORT).text


def test_every_eos_id_ends_the_answer(tiny: GetEngine) -> None:
    engine = tiny()
    reading = ask(engine.start("a"), [user("Hello")], options(5))
    assert reading.stats.new_tokens == 5
    written = next(iter(engine._scheduler._conversations["a"].answers.values()))
    first = written.index(written[3])
    for extra in (frozenset({written[3]}), frozenset({3, written[3]})):
        object.__setattr__(engine._runtime, "eos_ids", engine._runtime.eos_ids | extra)
        answer = ask(engine.start(f"b{len(extra)}"), [user("Hello")], options(50))
        assert answer.reason == "stop" and answer.stats.new_tokens == first


def test_a_seed_repeats_and_greedy_needs_none(tiny: GetEngine) -> None:
    engine = tiny()
    hot = ReplyOptions(temperature=1.5, seed=7, max_tokens=20)
    texts = {ask(engine.start(str(i)), [user("Hello")], hot).text for i in range(2)}
    others = {
        ask(engine.start(f"o{i}"), [user("Hello")], ReplyOptions(temperature=1.5, max_tokens=20)).text for i in range(3)
    }
    assert len(texts) == 1 and len(others) > 1


# ---------------------------------------------------------------- requests that make no sense


BAD: dict[str, tuple[type[EngineError], list[Message], ReplyOptions]] = {
    "no messages": (BadRequest, [], GREEDY),
    "empty": (BadRequest, [user(" ")], GREEDY),
    "picture to a text model": (BadRequest, [user("x", Image(b"123"))], GREEDY),
    "too long": (PromptTooLong, [user("word " * 4000)], GREEDY),
    "temperature": (BadRequest, [user("x")], ReplyOptions(temperature=-1)),
    "nan": (BadRequest, [user("x")], ReplyOptions(temperature=float("nan"))),
    "top_p": (BadRequest, [user("x")], ReplyOptions(top_p=1.5)),
    "top_k": (BadRequest, [user("x")], ReplyOptions(top_k=-2)),
    "max_tokens": (BadRequest, [user("x")], ReplyOptions(max_tokens=0)),
    "penalty": (BadRequest, [user("x")], ReplyOptions(repetition_penalty=0)),
    "large seed": (BadRequest, [user("x")], ReplyOptions(seed=2**70)),
    "negative seed": (BadRequest, [user("x")], ReplyOptions(seed=-(2**70))),
}


def test_bad_requests_get_a_sentence_and_leave_everything_usable(tiny: GetEngine) -> None:
    engine = tiny("hy_v4")
    session = engine.start("a")
    before = ask(session, [user("Hello")], SHORT).text
    for name, (kind, messages, chosen) in BAD.items():
        with pytest.raises(kind) as caught:
            list(session.reply(messages, chosen))
        assert is_one_sentence(caught.value), name
        again = ask(session, [user("Hello")], SHORT)
        assert again.text == before and again.stats.reused_tokens == again.stats.prompt_tokens - 1, name
    check_cache(engine)


def test_a_damaged_picture_leaves_everything_usable(tiny: GetEngine) -> None:
    session = tiny().start("a")
    with pytest.raises(BadImage):
        list(session.reply([user("x", Image(b"not a picture"))]))
    assert ask(session, [user("Hello")], SHORT).reason == "length"


# ---------------------------------------------------------------- threads and ends of life


def test_two_threads_on_one_session_do_not_mix(tiny: GetEngine, paused: Any) -> None:
    engine = tiny()
    session = engine.start("a")
    expected = ask(engine.start("b"), [user("Hello")], SHORT).text
    there, go = paused(2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, session, [user("Hello")], SHORT)
        assert there.wait(60)
        with pytest.raises(BadRequest, match="still answering"):
            session.reply([user("Other")], SHORT)
        go.set()
        assert first.result(60).text == expected
    assert ask(session, [user("Hello")], SHORT).text == expected


def test_closing_the_engine_ends_answers_and_refuses_new_ones(tiny: GetEngine, paused: Any) -> None:
    engine = tiny()
    sessions = [engine.start(str(i)) for i in range(3)]
    there, go = paused(5)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, s, [user("Hello")], options(1000)) for s in sessions]
        assert there.wait(60)
        closing = pool.submit(engine.close)
        go.set()
        closing.result(60)
        assert [a.result(60).reason for a in answers] == ["cancelled"] * 3
    done, failures = threading.Event(), list[BaseException]()

    def late() -> None:
        try:
            ask(sessions[0], [user("Hello")], SHORT)
        except EngineError as error:
            failures.append(error)
        done.set()

    threading.Thread(target=late, daemon=True).start()
    assert done.wait(20), "a reply after close hangs"
    assert failures and is_one_sentence(failures[0])  # type: ignore[arg-type]
    engine.close()


def test_closing_a_session_frees_its_pages_and_it_can_start_again(tiny: GetEngine) -> None:
    engine = tiny()
    free = engine._runtime.cache.allocator.num_free
    session = engine.start("a")
    text = ask(session, [user("Hello")], SHORT).text
    assert engine._runtime.cache.allocator.num_free < free
    session.close()
    again = ask(engine.start("a"), [user("Hello")], SHORT)
    assert again.text == text and again.stats.reused_tokens == 0
    engine.start("a").close()
    ask(engine.start("b"), [user("Hello")], SHORT)
    engine.start("b").close()
    engine.close()
    assert engine._runtime.cache.allocator.num_free == free


def test_closing_a_session_while_it_answers(tiny: GetEngine, paused: Any) -> None:
    engine = tiny()
    session = engine.start("a")
    there, go = paused(3)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, session, [user("Hello")], options(1000))
        assert there.wait(60)
        session.close()
        go.set()
        assert answer.result(60).reason == "cancelled"
    assert ask(engine.start("a"), [user("Hello")], SHORT).reason == "length"
    check_cache(engine)


# ---------------------------------------------------------------- faults


def _failing(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, number: int, error: Exception) -> None:
    """Call number `number` of a method raises."""
    original, calls = getattr(target, name), [0]

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(target, name, call)


@pytest.mark.parametrize(
    "error", [RuntimeError("boom\nsecond line"), MemoryError(), EngineError("The disk is gone.")], ids=repr
)
@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_failing_step_reaches_the_caller_and_the_next_request_works(
    tiny: GetEngine, monkeypatch: pytest.MonkeyPatch, step: int, error: Exception
) -> None:
    engine = tiny()
    expected = ask(engine.start("b"), [user("Hello")], SHORT).text
    session = engine.start("a")
    with monkeypatch.context() as patch:
        _failing(patch, Transformer, "__call__", step, error)
        with pytest.raises(EngineError) as caught:
            list(session.reply([user("Hello" if step > 1 else LONG)], options(50)))
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    assert ask(session, [user("Hello")], SHORT).text == expected
    check_cache(engine)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (Scheduler, "_place"),
        (Scheduler, "_reusable"),
        (Scheduler, "_plan_step"),
        (scheduler, "chunk_of"),
        (Scheduler, "_next_token"),
    ],
)
def test_a_fault_anywhere_in_the_scheduler_hangs_nobody(
    tiny: GetEngine, monkeypatch: pytest.MonkeyPatch, target: Any, name: str
) -> None:
    engine = tiny()
    outcome: list[Any] = []
    with monkeypatch.context() as patch:
        _failing(patch, target, name, 1, RuntimeError("boom"))

        def run() -> None:
            try:
                outcome.append(ask(engine.start("a"), [user("Hello")], SHORT))
            except EngineError as error:
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(30)
    assert outcome, "the request hangs"
    assert isinstance(outcome[0], EngineError) or outcome[0].reason == "length"
    assert ask(engine.start("a"), [user("Hello")], SHORT).reason == "length"
    check_cache(engine)


def test_a_picture_that_fails_in_the_encoder_ends_only_its_request(
    oracle_case: GetCase, tiny: GetEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny()
    path = oracle_case("hy_v4_vl").image_paths[0]
    with monkeypatch.context() as patch:
        _failing(patch, type(engine._runtime.model.vision), "__call__", 1, RuntimeError("boom"))
        with ThreadPoolExecutor(2) as pool:
            other = pool.submit(ask, engine.start("b"), [user("Hello")], options(20))
            with pytest.raises(EngineError):
                list(engine.start("a").reply([user("x", Image(path))], SHORT))
            assert other.result(60).reason == "length"
    assert ask(engine.start("a"), [user("x", Image(path))], SHORT).reason == "length"
    check_cache(engine)


def test_logits_that_are_not_numbers_are_an_error(tiny: GetEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny()
    original = Transformer.__call__
    with monkeypatch.context() as patch:
        patch.setattr(Transformer, "__call__", lambda self, batch: original(self, batch) * torch.nan)
        for chosen in (SHORT, ReplyOptions(temperature=1.0, max_tokens=3)):
            with pytest.raises(EngineError):
                list(engine.start("a").reply([user("Hello")], chosen))
    assert ask(engine.start("a"), [user("Hello")], SHORT).reason == "length"


def _texts(session: Session, chat: list[Message]) -> list[str]:
    return [e.text for e in session.reply(chat, options(40)) if isinstance(e, Text)]


def test_events_are_never_empty_or_broken(open_engine: GetEngine) -> None:
    for text in _texts(open_engine().start("a"), [user("量化 🙂?")]):
        assert text and "\ufffd" not in text
