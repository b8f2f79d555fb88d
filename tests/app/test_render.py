"""What the page shows: a model's text is data, a person's text is literal, and nothing is lost on the way back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import Info
from hypothesis import given
from hypothesis import strategies as st

from app.opening import ModelStatus
from app.store import Message
from app.ui import render

MESSAGE = Message(1, "c", None, "assistant", "text", "", "done", "stop", "", {}, 0.0)


@given(st.text().filter(lambda text: render.JOINER not in text))
def test_guarding_can_be_undone(text):
    assert render.unguard(render.guard(text)) == text


@given(st.text(alphabet="ab<>/`~\n \t!()[]$\\&#;", max_size=80))
def test_safe_markdown_only_adds_joiners_without_pictures(text):
    if "![" not in text:
        assert render.unguard(render.safe_markdown(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "<script>x</script>",
        "a <img src=http://x/y.png onerror=z> b",
        "<form action='http://x'>",
        "</div><!-- x -->",
        "`unclosed <b>\n\n<i>x</i>",
        "~~~ not a fence <b>x",
    ],
)
def test_tags_of_a_model_become_text(text):
    safe = render.safe_markdown(text) if not text.startswith("~~~") else render.safe_markdown("x " + text)
    for tag in ("script>", "img", "form", "/div", "!--", "i>"):
        assert f"<{tag}" not in safe


def test_code_and_formulas_stay_as_they_are():
    text = "a `<b>` c\n\n```html\n<div>\n\t<b>\n```\n$$a<b$$ and \\(x<y\\) and <u>"
    safe = render.safe_markdown(text)
    assert "`<b>`" in safe and "<div>" in safe and "$$a<b$$" in safe and "\\(x<y\\)" in safe
    assert "<u>" not in safe and f"{render.JOINER}\t<b>" in safe


def test_an_open_fence_at_the_end_is_code():
    assert render.safe_markdown("```\n<b>") == "```\n<b>"


def test_remote_pictures_become_links():
    safe = render.safe_markdown('![spy](http://x.invalid/a.png "t") ![r][ref] ![c] x')
    assert "[spy (not loaded)](http://x.invalid/a.png)" in safe and "![" not in safe


def test_answers_show_how_they_ended():
    stats = {"new_tokens": 12, "decode_tokens_per_second": 34.56}
    shown = render.display_answer(replace(MESSAGE, thinking="hm", finish_reason="length", stats=stats))
    assert shown[0]["metadata"] == {"title": "Thoughts", "status": "done"}
    assert "token limit reached · 12 tokens · 34.6 tokens/s" in shown[1]["content"][0]
    failed = render.display_answer(replace(MESSAGE, state="error", error="a <b> problem"))
    assert "a &lt;b&gt; problem" in failed[0]["content"][0] and "text" in failed[0]["content"][0]
    assert "interrupted" in render.display_answer(replace(MESSAGE, state="interrupted"))[0]["content"][0]
    assert "empty answer" in render.display_answer(replace(MESSAGE, text=""))[0]["content"][0]


def test_the_empty_state_names_the_model():
    loading = ModelStatus("loading", "big <model>", "reading tensors", 1, 4)
    assert "still loading" in render.empty_state(loading) and "25 %" in render.model_line(loading)
    assert "<model>" not in render.empty_state(loading) and "<model>" not in render.model_line(loading)
    ready = ModelStatus("ready", "m", info=Info(sees_images=False))
    assert "reads text only" in render.empty_state(ready) and "4,096" in render.empty_state(ready)
    demo = ModelStatus("ready", "demo", info=Info(path=Path("assets/demo")))
    assert "Demo model" in render.empty_state(demo) and len(render.examples(demo)) == 3
