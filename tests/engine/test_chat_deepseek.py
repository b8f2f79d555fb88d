"""Prompt text of DeepSeek-V3.2 and V4, marker by marker."""

from __future__ import annotations

import pytest

from engine.chat.deepseek import EFFORTS, encode_v4, encode_v32
from engine.chat.style import EncodeOptions, Encoder
from engine.errors import BadRequest
from engine.families import deepseek_v4, deepseek_v32
from engine.messages import Image, Message

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
TALK = [
    Message("system", "Be brief."),
    Message("user", "One?"),
    Message("assistant", "Two.", thinking="1 + 1"),
    Message("user", "Why?"),
]
both = pytest.mark.parametrize("encode", [encode_v32, encode_v4])


@both
@pytest.mark.parametrize(("thinking", "mark"), [(True, "<think>"), (False, "</think>")])
def test_a_conversation(encode: Encoder, thinking: bool, mark: str) -> None:
    assert encode(TALK, EncodeOptions(thinking)) == (
        f"{BOS}Be brief.<｜User｜>One?<｜Assistant｜></think>Two.{EOS}<｜User｜>Why?<｜Assistant｜>{mark}"
    )


@both
def test_without_a_system_message(encode: Encoder) -> None:
    assert encode(TALK[1:2], EncodeOptions(True)) == f"{BOS}<｜User｜>One?<｜Assistant｜><think>"


@both
def test_earlier_reasoning_is_dropped(encode: Encoder) -> None:
    assert "1 + 1" not in encode(TALK, EncodeOptions(True))


@both
def test_a_longer_conversation_begins_with_the_shorter_one(encode: Encoder) -> None:
    """What lets the cache be used again: only the mark behind the last assistant token may differ."""
    short, long = encode(TALK[:2], EncodeOptions(False)), encode(TALK, EncodeOptions(False))
    assert long.startswith(short)


@pytest.mark.parametrize("effort", [None, "high", "low", "max"])
def test_reasoning_effort_is_said_at_the_very_start(effort: str | None) -> None:
    text = encode_v4(TALK, EncodeOptions(True, effort))
    assert text.startswith(f"{BOS}{EFFORTS[effort or 'high']}Be brief.")
    assert encode_v4(TALK, EncodeOptions(False, effort)).startswith(f"{BOS}Be brief.")
    assert (text == encode_v4(TALK, EncodeOptions(True))) == (effort in (None, "high"))


def test_an_unknown_effort_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"'huge'.*low, high, max"):
        encode_v4(TALK, EncodeOptions(True, "huge"))
    assert encode_v32(TALK, EncodeOptions(True, "huge")) == encode_v32(TALK, EncodeOptions(True))


def test_pictures_stand_before_the_text() -> None:
    pictures = (Image(b"a"), Image(b"b"))
    text = encode_v4([Message("user", "Which?", pictures)], EncodeOptions(False))
    assert text == f"{BOS}<｜User｜>{'<｜deepseek_image｜>' * 2}Which?<｜Assistant｜></think>"


def test_families_name_the_marks() -> None:
    for family, encode in ((deepseek_v32.FAMILY, encode_v32), (deepseek_v4.FAMILY, encode_v4)):
        assert (family.chat.think_open, family.chat.think_close) == ("<think>", "</think>")
        assert family.chat.encode is encode
