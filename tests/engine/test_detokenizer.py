"""Text of generated ids: never half a character, the same text as decoding at once, stop strings, thinking apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.chat.detokenizer import AnswerStream, Detokenizer, StopFilter
from engine.chat.tokens import Tokens
from engine.events import Text, Thinking
from tests.engine.helpers import DEMO

FUZZ = settings(max_examples=150, deadline=None)
BYTES, OPEN, CLOSE, EOS = 256, 256, 257, 258


@pytest.fixture(scope="module")
def byte_tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One token per byte (id = byte), then <think>, </think> and <eos>: the worst case for half characters."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    order = _byte_letters()
    assert sorted(order) == sorted(alphabet)
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(order)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<think>", "</think>", "<eos>")])
    folder = tmp_path_factory.mktemp("bytes")
    tokenizer.save(str(folder / "tokenizer.json"))
    return Tokens(folder)


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level BPE (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = [], 256
    for byte in range(256):
        if byte in printable:
            letters.append(chr(byte))
        else:
            letters.append(chr(extra))
            extra += 1
    return letters


@pytest.fixture(scope="module")
def demo_tokens() -> Tokens:
    return Tokens(DEMO)


def pieces(tokens: Tokens, ids: list[int]) -> list[str]:
    stream = Detokenizer(tokens)
    return [stream.push(i) for i in ids] + [stream.flush()]


CHARACTERS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=12
) | st.sampled_from(
    ["👩‍👩‍👧‍👦 family", "量化后的权重", "aé🙂b", "🇩🇪🇫🇷", "e\u0301", "한국어 텍스트", "\u200b\u2028x", "🙂" * 9]
)


@FUZZ
@given(text=CHARACTERS)
def test_valid_text_comes_out_whole_and_never_in_half_characters(byte_tokens: Tokens, text: str) -> None:
    ids = list(text.encode())
    given_out = pieces(byte_tokens, ids)
    assert "".join(given_out) == text
    assert all("\ufffd" not in piece for piece in given_out)


@FUZZ
@given(text=CHARACTERS)
def test_every_character_is_given_out_as_soon_as_it_is_whole(byte_tokens: Tokens, text: str) -> None:
    stream, told = Detokenizer(byte_tokens), ""
    for character in text:
        for byte in character.encode():
            told += stream.push(byte)
        assert text.startswith(told) and told.endswith(character)


@FUZZ
@given(ids=st.lists(st.integers(0, 255), max_size=40))
@example(ids=[0x80] * 12 + list("🙂".encode()))
@example(ids=[0x80] * 7 + [0xF0] + list("🙂".encode()) + [0x9F])
@example(ids=list("🙂".encode())[:2] * 9 + list(b"ab"))
def test_any_bytes_give_the_text_of_decoding_at_once(byte_tokens: Tokens, ids: list[int]) -> None:
    whole = byte_tokens.decode(ids)
    assert "".join(pieces(byte_tokens, ids)).rstrip("\ufffd") == whole.rstrip("\ufffd")


@FUZZ
@given(noise=st.lists(st.integers(0x80, 0xBF), max_size=12), text=CHARACTERS.filter(bool))
def test_a_character_after_broken_bytes_is_whole(byte_tokens: Tokens, noise: list[int], text: str) -> None:
    told = "".join(pieces(byte_tokens, noise + list(text.encode())))
    assert told == "\ufffd" * len(noise) + text


def test_broken_bytes_do_not_hold_back_the_answer_for_ever(byte_tokens: Tokens) -> None:
    stream = Detokenizer(byte_tokens)
    told = "".join(stream.push(0x80) for _ in range(100))
    assert len(told) >= 90


@FUZZ
@given(data=st.data())
def test_any_ids_of_the_demo_tokenizer(demo_tokens: Tokens, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, demo_tokens.vocab_size - 1), max_size=40))
    whole = demo_tokens.decode(ids)
    assert "".join(pieces(demo_tokens, ids)).rstrip("\ufffd") == whole.rstrip("\ufffd")


@pytest.mark.parametrize("text", ["Hello  world ", " leading", "量化 🙂 test\n\n", "tabs\tand\r\nlines"])
def test_spaces_survive_at_every_border(demo_tokens: Tokens, text: str) -> None:
    assert "".join(pieces(demo_tokens, demo_tokens.encode(text))) == text


# ---------------------------------------------------------------- stop strings


@FUZZ
@given(
    text=st.text("abX", max_size=30), stops=st.lists(st.text("abX", min_size=1, max_size=4), max_size=3), data=st.data()
)
def test_a_stop_string_is_found_wherever_the_pieces_are_cut(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    filtered, told = StopFilter(stops), ""
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        told += filtered.push(text[begin:end])
    told += filtered.flush()
    hits = [text.find(s) for s in stops if s in text]
    assert filtered.matched == bool(hits)
    if not hits:
        assert told == text
    else:
        ends = min(text.find(s) + len(s) for s in stops if s in text)
        assert told == text[: len(told)] and not any(s in told for s in stops)
        assert len(told) <= ends  # what was cut before the first match became certain


def test_only_what_may_begin_a_stop_string_is_held_back() -> None:
    filtered = StopFilter(["STOP"])
    assert filtered.push("hello ST") == "hello "
    assert filtered.push("ARS") == "STAR"
    assert filtered.push("TOP after") == ""
    assert filtered.matched and filtered.push("more") == "" and filtered.flush() == ""


def test_an_empty_stop_string_does_not_stop() -> None:
    filtered = StopFilter(["", "x"])
    assert filtered.push("abc") == "abc" and not filtered.matched


# ---------------------------------------------------------------- thinking


def said(stream: AnswerStream, ids: list[int]) -> tuple[str, str]:
    """(thinking, answer) as events tell them."""
    events = [e for i in ids for e in stream.push(i)] + stream.finish()
    assert all(e.text for e in events)
    thinking = "".join(e.text for e in events if isinstance(e, Thinking))
    return thinking, "".join(e.text for e in events if isinstance(e, Text))


def ids_of(*parts: str | int) -> list[int]:
    return [i for part in parts for i in ([part] if isinstance(part, int) else part.encode())]


THINKING_CASES = {
    "open at the start": (True, ("hm", CLOSE, "yes"), "hm", "yes"),
    "opened by the model": (False, (OPEN, "hm", CLOSE, "yes"), "hm", "yes"),
    "opened after blank space": (False, (" \n", OPEN, "hm", CLOSE, "yes"), "hm", " \nyes"),
    "never closed": (True, ("hm and hm",), "hm and hm", ""),
    "closed at once": (True, (CLOSE, "yes"), "", "yes"),
    "marks inside thinking as text": (True, ("a <think> b </think> c", CLOSE, "yes"), "a <think> b </think> c", "yes"),
    "opened twice": (False, (OPEN, "a", OPEN, "b", CLOSE, "yes"), "ab", "yes"),
    "a mark inside the answer": (False, ("yes", OPEN, "no"), "", "yesno"),
    "not thinking at all": (False, ("yes",), "", "yes"),
    "half a character before the close": (True, ("a", 0xF0, 0x9F, CLOSE, "yes"), "a", "yes"),
}


@pytest.mark.parametrize("case", list(THINKING_CASES))
def test_thinking_is_kept_apart(byte_tokens: Tokens, case: str) -> None:
    opened, parts, thinking, answer = THINKING_CASES[case]
    stream = AnswerStream(byte_tokens, OPEN, CLOSE, opened, ())
    assert said(stream, ids_of(*parts)) == (thinking, answer)
    assert stream.answer == answer


def test_stop_strings_do_not_end_thinking(byte_tokens: Tokens) -> None:
    stream = AnswerStream(byte_tokens, OPEN, CLOSE, True, ("END",))
    assert said(stream, ids_of("not the END", CLOSE, "but END here")) == ("not the END", "but ")
    assert stream.stopped


def test_without_a_stop_the_answers_ids_read_back_as_the_answer(byte_tokens: Tokens) -> None:
    stream = AnswerStream(byte_tokens, OPEN, CLOSE, True, ())
    said(stream, ids_of("hm", CLOSE, "größer 🙂"))
    assert byte_tokens.decode(stream.answer_ids) == stream.answer == "größer 🙂"


def test_special_tokens_are_not_answer_text(byte_tokens: Tokens) -> None:
    stream = AnswerStream(byte_tokens, None, None, False, ())
    assert said(stream, ids_of("a", EOS, "b")) == ("", "ab")


def test_the_fixture_has_one_token_per_byte(byte_tokens: Tokens, tmp_path: Path) -> None:
    assert byte_tokens.encode("a🙂") == list("a🙂".encode()) and byte_tokens.decode([0xC3, 0xA9]) == "é"
