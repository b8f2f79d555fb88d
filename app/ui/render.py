"""Stored and live messages as what the page displays, one way only: display values are never read back as truth.

Text from a model is data: its HTML is shown as text, remote pictures become plain links. Knows no gradio."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.generation import Live
from app.opening import ModelStatus
from app.store import Message

Display = dict[str, Any]

# A word joiner after "<" or "&": invisible, and enough to make a tag or an entity plain text. Removed on copy and edit.
JOINER = "\u2060"
_OPENS_TAG = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")

# The page's Markdown turns leading tabs into spaces; behind a joiner a tab stays one.
_LEADING_TAB = re.compile(r"^( *)\t", re.MULTILINE)

# Places where markup is not interpreted: fenced code, inline code, and formulas.
_VERBATIM = re.compile(
    r"(?P<fence>^ {0,3}(?P<mark>`{3,}|~{3,})[^\n]*\n(?:.*?^ {0,3}(?P=mark)[`~]*[ \t]*$|.*\Z))"
    r"|(?P<code>(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<math>\$\$.*?\$\$|\\\[.*?\\\]|\\\(.*?\\\))",
    re.DOTALL | re.MULTILINE,
)
_REMOTE_PICTURE = re.compile(r"!\[([^\]\n]*)\]\(\s*<?(?!data:image/)([^)\s>]+)>?[^)\n]*\)")
_REFERENCE_PICTURE = re.compile(r"!(?=\[[^\]\n]*\]\s?(?:\[[^\]\n]*\]|(?!\()))")

_ENDINGS = {
    "length": "token limit reached",
    "context_full": "context full",
    "cancelled": "stopped",
}
_ROLES_STATES = {
    "stopped": "stopped",
    "interrupted": "interrupted when the app closed",
}


def guard(text: str) -> str:
    """Make every tag and entity plain text and keep leading tabs, invisibly."""
    return _keep_tabs(_OPENS_TAG.sub(lambda match: match[0] + JOINER, text))


def _keep_tabs(text: str) -> str:
    return _LEADING_TAB.sub(rf"\1{JOINER}\t", text)


def unguard(text: str) -> str:
    """The original text of a guarded one."""
    return text.replace(JOINER, "")


def safe_markdown(text: str) -> str:
    """Markdown of a model without live HTML and without remote pictures; code and formulas stay as they are."""
    parts: list[str] = []
    position = 0
    for match in _VERBATIM.finditer(text):
        verbatim = _keep_tabs(match[0]) if match["fence"] else match[0]
        parts += [_safe_prose(text[position : match.start()]), verbatim]
        position = match.end()
    parts.append(_safe_prose(text[position:]))
    return "".join(parts)


def _safe_prose(text: str) -> str:
    text = _REMOTE_PICTURE.sub(lambda match: f"[{match[1] or 'picture'} (not loaded)]({match[2]})", text)
    text = _REFERENCE_PICTURE.sub("!" + JOINER, text)
    # Tabs of prose are left to Markdown: they nest lists.
    return _OPENS_TAG.sub(lambda match: match[0] + JOINER, text)


def display_path(messages: Sequence[Message]) -> list[Display]:
    """All messages of the shown window, each as one or more display entries."""
    entries: list[Display] = []
    for message in messages:
        entries += display_user(message) if message.role == "user" else display_answer(message)
    return entries


def display_user(message: Message) -> list[Display]:
    """A person's message: its pictures, then its text exactly as typed."""
    content: list[Any] = [
        {"path": str(attachment.preview_path), "alt_text": attachment.name} for attachment in message.attachments
    ]
    if message.text or not content:
        content.append(guard(message.text))
    return [{"role": "user", "content": content, "id": message.id}]


def display_answer(message: Message) -> list[Display]:
    """A model's message: thinking folded away, the text, and one small line of facts."""
    entries: list[Display] = []
    if message.thinking:
        entries.append(_thought(message.thinking, "done", message.stats.get("thinking_ms", 0), message.id))
    note = _facts_line(message)
    text = safe_markdown(message.text)
    entries.append({"role": "assistant", "content": [f"{text}\n\n{note}" if text else note], "id": message.id})
    return entries


def display_live(live: Live) -> list[Display]:
    """The answer that is being written; empty until its first word."""
    entries: list[Display] = []
    if live.thinking:
        state = "pending" if live.phase == "thinking" else "done"
        entries.append(_thought(live.thinking, state, live.thinking_ms, live.message_id))
    if live.text:
        entries.append({"role": "assistant", "content": [safe_markdown(live.text)], "id": live.message_id})
    return entries


def _thought(text: str, state: str, thinking_ms: float, message_id: int) -> Display:
    metadata: dict[str, Any] = {"title": "Thinking" if state == "pending" else "Thoughts", "status": state}
    if thinking_ms >= 1e3 and state == "done":
        metadata["duration"] = thinking_ms / 1e3
    return {"role": "assistant", "content": [safe_markdown(text)], "metadata": metadata, "id": message_id}


def _facts_line(message: Message) -> str:
    if message.state == "error" or message.error:
        return f'<div class="dz-error">{html.escape(message.error)}</div>'
    facts: list[str] = []
    ending = _ROLES_STATES.get(message.state) or _ENDINGS.get(message.finish_reason, "")
    if ending:
        facts.append(ending)
    new_tokens = message.stats.get("new_tokens", 0)
    if new_tokens:
        facts.append(f"{new_tokens:,} tokens" if new_tokens != 1 else "1 token")
    speed = message.stats.get("decode_tokens_per_second", 0.0)
    if speed:
        facts.append(f"{speed:.1f} tokens/s")
    if message.stats.get("restored_tokens", 0):
        facts.append(restored_text(message.stats["restored_tokens"], message.stats.get("restore_ms", 0.0)))
    facts += message.stats.get("notices", [])
    if not facts and message.state == "done" and not message.text:
        facts.append("the model gave an empty answer")
    return f'<div class="dz-facts">{html.escape(" · ".join(facts))}</div>' if facts else ""


def restored_text(tokens: int, restore_ms: float) -> str:
    """How much came back from saved state, and how fast."""
    return f"{tokens:,} token{'' if tokens == 1 else 's'} restored in {restore_ms:,.0f} ms"


def live_line(live: Live, model: ModelStatus) -> str:
    """What happens right now, as small HTML below the last message."""
    if live.phase == "model":
        text = model.sentence if model.phase == "loading" else "Starting"
    elif live.phase == "queued":
        text = "Waiting for room" if live.position <= 0 else f"Waiting for room, {live.position} before this one"
    elif live.phase == "reading":
        text = f"Reading {live.read_tokens:,} of {live.total_tokens:,} tokens"
    elif live.phase == "thinking":
        text = "Thinking"
    else:
        text = "Writing"
    bar = ""
    if live.phase == "reading" and live.total_tokens:
        bar = _bar(live.read_tokens / live.total_tokens)
    elif live.phase == "model" and model.total_bytes:
        bar = _bar(model.done_bytes / model.total_bytes)
    if live.restored_tokens:
        text += f" · {restored_text(live.restored_tokens, live.restore_ms)}"
    if live.phase in ("thinking", "writing") and live.tokens_per_second:
        text += f" · {live.tokens_per_second:.0f} tokens/s"
    said = " ".join([*live.notices, live.warning]).strip()
    warning = f'<span class="dz-warning">{html.escape(said)}</span>' if said else ""
    return f'<div class="dz-live" role="status"><span class="dz-dot"></span>{html.escape(text)}{bar}{warning}</div>'


def _bar(part: float) -> str:
    percent = 100 * min(max(part, 0.0), 1.0)
    return f'<span class="dz-bar"><span style="width:{percent:.0f}%"></span></span>'


def meter(messages: Sequence[Message], model: ModelStatus) -> str:
    """Context used after the last answer, and how fast it came, as small HTML."""
    stats = next((m.stats for m in reversed(messages) if m.role == "assistant" and m.stats), None)
    if stats is None:
        limit = getattr(model.info, "context_tokens", 0)
        return f'<div class="dz-meter">context of {limit:,} tokens</div>' if limit else ""
    used, limit = stats.get("context_tokens", 0), stats.get("context_limit_tokens", 0) or 1
    speed = stats.get("decode_tokens_per_second", 0.0)
    reused = stats.get("reused_tokens", 0) + stats.get("restored_tokens", 0)
    parts = [
        f"context {used:,} of {limit:,} tokens {_bar(used / limit)}",
        f"{speed:.1f} tokens/s" if speed else "",
        f"prompt {stats.get('prompt_tokens', 0):,} tokens" + (f", {reused:,} of them kept" if reused else ""),
    ]
    return '<div class="dz-meter">' + "".join(f"<span>{part}</span>" for part in parts if part) + "</div>"


def model_line(model: ModelStatus) -> str:
    """The model's name, or how far it is, as small HTML."""
    bar = _bar(model.done_bytes / model.total_bytes) if model.phase == "loading" and model.total_bytes else ""
    text = _shown_name(model) if model.phase == "ready" else model.sentence
    return f'<div class="dz-model dz-{model.phase}" title="{html.escape(text)}">{html.escape(text)}{bar}</div>'


def empty_state(model: ModelStatus) -> str:
    """What an empty conversation says: which model answers here and what it can do."""
    lines = [f"## {guard(_shown_name(model))}"]
    info = model.info
    if model.phase == "failed":
        lines.append(guard(model.error))
    elif info is None:
        lines.append("The model is still loading; you can already write, the answer comes when it is ready.")
    else:
        sight = "reads text and pictures" if info.sees_images else "reads text only"
        lines.append(
            f"This model {sight} and keeps up to {info.context_tokens:,} tokens in mind. "
            "It runs on this computer; nothing you write leaves it."
        )
        if is_demo(model):
            lines.append("It is a very small demonstration model: it greets, names shapes and colours, and errs often.")
    return "\n\n".join(lines)


def _shown_name(model: ModelStatus) -> str:
    return "Demo model" if is_demo(model) else model.name


def sees_images(model: ModelStatus) -> bool:
    """Whether the model is open and reads pictures."""
    return model.info is not None and model.info.sees_images


def is_demo(model: ModelStatus) -> bool:
    """Whether the model is the one that ships with the app."""
    path = getattr(model.info, "path", None) or Path(model.name)
    return Path(path).name == "demo"


def export_links(conversation_id: str) -> str:
    """Two downloads of one conversation, as small HTML."""
    address = f"export/{html.escape(conversation_id)}"
    return (
        f'<div class="dz-links"><a href="{address}" download>Messages and pictures</a>'
        f'<a href="{address}?state=1" download>The same with saved state</a></div>'
    )


def examples(model: ModelStatus) -> list[str]:
    """First questions to offer, fitting what the model can do."""
    if is_demo(model):
        return ["Hello! How are you?", "What is the capital of France?", "What is 7 plus 8?"]
    return [
        "Explain how a sparse attention model reads a long text.",
        "Write a short poem about the first day of autumn.",
        "Compare a list and a tuple in Python with examples.",
    ]
