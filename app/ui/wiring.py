"""Connects parts to handlers: the only place with events. Turns changes into Gradio updates, decides nothing."""

from __future__ import annotations

import html
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from gradio.components.chatbot import FileMessage, Message, TextMessage
from gradio.data_classes import FileData

from app.assets import Sample
from app.store import ReplySettings
from app.ui.handlers import Handlers
from app.ui.layout import Parts
from app.ui.shown import Change

_REMEMBER = "(place) => { sessionStorage.setItem('dayzero-place', place || ''); return []; }"
_REMEMBERED = "() => [sessionStorage.getItem('dayzero-place') || '']"
# What was sent leaves the composer when it is stored; words typed since then stay.
_SENDING = """(...values) => {
  const {text, files} = values[1];
  window.dayzeroSent = {text, paths: files.map((file) => file.path)};
  return values;
}"""
_TAKEN = """(composed) => {
  const {text, paths} = window.dayzeroSent;
  const rest = composed.text.startsWith(text) ? composed.text.slice(text.length) : composed.text;
  return [{text: rest, files: composed.files.filter((file) => !paths.includes(file.path))}];
}"""
_FOCUS = "() => { window.dayzero && window.dayzero.focusComposer(); return []; }"
_LEAVE_SIDEBAR = "() => { window.dayzero && window.dayzero.leaveSidebar(); return []; }"

# Short events answer from the store; they skip the queue. Streams share no limit: the engine schedules answers itself.
_SHORT: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
_STREAM: dict[str, Any] = {
    "queue": True,
    "show_progress": "hidden",
    "api_visibility": "private",
    "concurrency_limit": None,
}


def connect(page: gr.Blocks, parts: Parts, handlers: Handlers) -> None:
    """Attach every event of the page."""
    wire = _Wire(parts)
    _connect_arrival(page, parts, handlers, wire)
    _connect_sidebar(parts, handlers, wire)
    _connect_writing(parts, handlers, wire)
    _connect_panels(parts, handlers, wire)


class _Wire:
    """Wraps handlers as Gradio functions: all share one list of outputs, each change touches only what it names."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.outputs = _outputs(parts)

    def short(self, event: Any, function: Callable[..., Change], inputs: list[Any], **options: Any) -> Any:
        """A quick action: `function(page_id, *inputs)`."""

        def call(request: gr.Request, *values: Any) -> Any:
            return self.updates(function(_page_id(request), *values))

        return event(call, inputs, self.outputs, **{**_SHORT, **options})

    def stream(self, event: Any, function: Callable[..., Iterator[Change]], inputs: list[Any], **options: Any) -> Any:
        """A stream of changes: `function(page_id, *inputs)`."""

        def call(request: gr.Request, *values: Any) -> Iterator[Any]:
            for change in function(_page_id(request), *values):
                yield self.updates(change)

        return event(call, inputs, self.outputs, **{**_STREAM, **options})

    def updates(self, change: Change) -> Any:
        """A change as Gradio updates."""
        updates = _updates(self.parts, change)
        return updates or gr.skip()


def _outputs(parts: Parts) -> list[Any]:
    p = parts
    return [
        p.place, p.kick, p.taken, p.list, p.model_line, p.title, p.rename_open, p.export_open, p.delete_open, p.rename_panel,
        p.rename_text, p.export_panel, p.export, p.delete_panel, p.memory_panel, p.memory, p.settings_panel, p.system,
        p.temperature, p.max_tokens, p.seed, p.thinking, p.older, p.empty, p.examples_row, *p.examples, p.samples_row,
        p.transcript, p.live, p.live_line, p.actions_row, p.previous, p.versions, p.following, p.go_on, p.composer,
        p.meter, p.notice, p.pulse,
    ]  # fmt: skip


def _updates(p: Parts, change: Change) -> dict[Any, Any]:
    updates: dict[Any, Any] = {}
    simple = {"place": p.place, "model_line": p.model_line, "live_line": p.live_line, "meter": p.meter}
    for key, part in simple.items():
        if key in change:
            updates[part] = change[key]
    if change.get("follow"):
        updates[p.kick] = uuid.uuid4().hex
    if change.get("taken"):
        updates[p.taken] = uuid.uuid4().hex
    if "list" in change:
        updates[p.list] = gr.update(choices=change["list"], value=change["chosen"])
    if change.get("notice"):
        # Toasts only reach the page from queued events; this line does from any, and stays until the next action.
        updates[p.notice] = f'<div class="dz-notice" role="alert">{html.escape(change["notice"])}</div>'
    elif "title" in change:
        updates[p.notice] = ""
    if change.get("arrived"):
        updates[p.pulse] = gr.update(active=True)
    _set_header(p, change, updates)
    _set_messages(p, change, updates)
    _set_actions(p, change, updates)
    _set_composer(p, change, updates)
    return updates


def _set_header(p: Parts, change: Change, updates: dict[Any, Any]) -> None:
    if "title" in change:
        shown = change["has_conversation"]
        updates[p.title] = html.escape(change["title"])
        updates[p.rename_text] = change["title"] if shown else ""
        updates[p.export] = change["export"]
        for button in (p.rename_open, p.export_open, p.delete_open):
            updates[button] = gr.update(visible=shown)
        for panel in (p.rename_panel, p.export_panel, p.delete_panel):
            updates[panel] = gr.update(visible=False)
    if "memory" in change:
        updates[p.memory] = change["memory"]
        updates[p.memory_panel] = gr.update(visible=bool(change["memory"]))
    if change.get("settings") is not None:
        _set_settings(p, change["settings"], updates)
    if "thinks" in change:
        updates[p.thinking] = gr.update(**_merged(updates.get(p.thinking), visible=change["thinks"]))


def _set_messages(p: Parts, change: Change, updates: dict[Any, Any]) -> None:
    for key, part in {"transcript": p.transcript, "live": p.live}.items():
        if key in change:
            updates[part] = gr.update(value=messages(change[key]), visible=bool(change[key]))
    if "empty" in change:
        updates[p.empty] = gr.update(value=change["empty"] or "", visible=change["empty"] is not None)
        updates[p.examples_row] = gr.update(visible=change["empty"] is not None)
    if "samples" in change:
        updates[p.samples_row] = gr.update(visible=change["samples"] and bool(p.samples))
    for button, text in zip(p.examples, change.get("examples", ()), strict=False):
        updates[button] = gr.update(value=text, visible=True)


def _set_actions(p: Parts, change: Change, updates: dict[Any, Any]) -> None:
    if "versions" not in change:
        return
    several = bool(change["versions"])
    updates[p.older] = gr.update(visible=change["older"])
    updates[p.versions] = gr.update(value=html.escape(change["versions"]), visible=several)
    updates[p.previous] = updates[p.following] = gr.update(visible=several)
    updates[p.go_on] = gr.update(visible=change["go_on"])
    updates[p.actions_row] = gr.update(visible=several or change["go_on"])


def _set_settings(p: Parts, settings: ReplySettings, updates: dict[Any, Any]) -> None:
    updates[p.system] = settings.system
    updates[p.temperature] = gr.update(value=settings.temperature)
    updates[p.max_tokens] = gr.update(value=settings.max_tokens)
    updates[p.seed] = gr.update(value=settings.seed)
    updates[p.thinking] = gr.update(value={None: "auto", True: "on", False: "off"}[settings.thinking])


def _set_composer(p: Parts, change: Change, updates: dict[Any, Any]) -> None:
    wanted: dict[str, Any] = {}
    if "answering" in change:
        wanted |= {"submit_btn": not change["answering"], "stop_btn": change["answering"]}
    if change.get("arrived"):
        wanted["interactive"] = True
    if wanted:
        updates[p.composer] = gr.update(**wanted)


def _merged(update: Any, **more: Any) -> dict[str, Any]:
    known = {key: value for key, value in (update or {}).items() if key != "__type__"}
    return {**known, **more}


def messages(entries: list[dict[str, Any]]) -> list[Message]:
    """Display entries as Gradio's own records, which are shown as they are: dictionaries would lose tabs and margins."""
    return [
        Message(
            role=entry["role"],
            content=[_content(part) for part in entry["content"]],
            metadata=entry.get("metadata"),
        )
        for entry in entries
    ]


def _content(part: Any) -> Any:
    if isinstance(part, str):
        return TextMessage(text=part)
    file = FileData(path=part["path"], mime_type="image/webp", orig_name=part["alt_text"])
    return FileMessage(file=file, alt_text=part["alt_text"])


def _page_id(request: gr.Request) -> str:
    return str(request.session_hash or "")


def _settings(values: tuple[Any, ...]) -> ReplySettings:
    system, temperature, max_tokens, seed, thinking = values
    return ReplySettings(
        system=system or "",
        temperature=temperature,
        max_tokens=None if max_tokens is None else int(max_tokens),
        seed=None if seed is None else int(seed),
        thinking={"on": True, "off": False}.get(thinking or ""),
    )


def _connect_arrival(page: gr.Blocks, p: Parts, handlers: Handlers, wire: _Wire) -> None:
    wire.short(page.load, handlers.arrive, [p.place], js=_REMEMBERED).then(None, None, None, js=_FOCUS)
    p.place.change(None, [p.place], None, js=_REMEMBER, api_visibility="private")
    wire.short(p.pulse.tick, handlers.pulse, [p.place])
    wire.stream(p.kick.change, handlers.follow, [p.place], trigger_mode="multiple")


def _connect_sidebar(p: Parts, handlers: Handlers, wire: _Wire) -> None:
    wire.short(p.new.click, handlers.new, []).then(None, None, None, js=_LEAVE_SIDEBAR).then(
        None, None, None, js=_FOCUS
    )
    wire.short(p.list.input, handlers.select, [p.list]).then(None, None, None, js=_LEAVE_SIDEBAR)
    wire.short(p.import_.upload, handlers.import_, [p.import_]).then(None, None, None, js=_LEAVE_SIDEBAR)
    wire.short(p.search.change, handlers.search, [p.search], trigger_mode="always_last")


def _connect_writing(p: Parts, handlers: Handlers, wire: _Wire) -> None:
    settings = [p.system, p.temperature, p.max_tokens, p.seed, p.thinking]

    def send(page_id: str, place: str, composed: Any, *values: Any) -> Change:
        return handlers.send(page_id, place, composed, _settings(values))

    def start(page_id: str, place: str, text: str, files: list[str], values: tuple[Any, ...]) -> Change:
        change = handlers.send(page_id, place, {"text": text, "files": files}, _settings(values))
        return {**change, "taken": False}  # what is in the composer is another message

    def start_example(page_id: str, place: str, text: str, *values: Any) -> Change:
        return start(page_id, place, text, [], values)

    sent = wire.short(p.composer.submit, send, [p.place, p.composer, *settings], js=_SENDING)
    sent.then(None, None, None, js=_FOCUS)
    p.taken.change(None, [p.composer], [p.composer], js=_TAKEN, api_visibility="private")
    for button in p.examples:
        wire.short(button.click, start_example, [p.place, button, *settings]).then(None, None, None, js=_FOCUS)
    for button, sample in p.samples:

        def start_sample(page_id: str, place: str, *values: Any, sample: Sample = sample) -> Change:
            return start(page_id, place, sample.question, [str(sample.path)], values)

        wire.short(button.click, start_sample, [p.place, *settings]).then(None, None, None, js=_FOCUS)
    wire.short(p.composer.stop, handlers.stop, [p.place]).then(None, None, None, js=_FOCUS)
    wire.short(p.older.click, handlers.older, [p.place])
    wire.short(p.go_on.click, handlers.go_on, [p.place])
    wire.short(p.previous.click, lambda page, place: handlers.show_version(page, place, -1), [p.place])
    wire.short(p.following.click, lambda page, place: handlers.show_version(page, place, 1), [p.place])

    def retry(place: str, data: gr.RetryData, request: gr.Request) -> Any:
        return wire.updates(handlers.regenerate(_page_id(request), place, _first(data.index)))

    def edit(place: str, data: gr.EditData, request: gr.Request) -> Any:
        return wire.updates(handlers.edit(_page_id(request), place, _first(data.index), str(data.value)))

    p.transcript.retry(retry, [p.place], wire.outputs, **_SHORT)
    p.transcript.edit(edit, [p.place], wire.outputs, **_SHORT)


def _connect_panels(p: Parts, handlers: Handlers, wire: _Wire) -> None:
    panels = [p.rename_panel, p.export_panel, p.delete_panel, p.settings_panel]

    def show(panel: Any) -> list[Any]:
        return [gr.update(visible=one is panel) for one in panels]

    quick = {**_SHORT}
    p.rename_open.click(lambda: show(p.rename_panel), None, panels, **quick)
    p.delete_open.click(lambda: show(p.delete_panel), None, panels, **quick)
    p.settings_open.click(lambda: show(p.settings_panel), None, panels, **quick)
    p.export_open.click(lambda: show(p.export_panel), None, panels, **quick)
    wire.short(p.memory_open.click, handlers.toggle_memory, [])
    gr.on([p.rename_cancel.click, p.delete_no.click, p.export_close.click], lambda: show(None), None, panels, **quick)
    for event in (p.rename_save.click, p.rename_text.submit):
        wire.short(event, handlers.rename, [p.place, p.rename_text])
    wire.short(p.delete_yes.click, handlers.delete, [p.place])

    def configure(page_id: str, place: str, *values: Any) -> Change:
        return handlers.configure(page_id, place, _settings(values))

    settings = [p.system, p.temperature, p.max_tokens, p.seed, p.thinking]
    for event in (p.system.blur, p.temperature.blur, p.max_tokens.blur, p.seed.blur, p.thinking.input):
        wire.short(event, configure, [p.place, *settings])
    wire.short(p.settings_close.click, configure, [p.place, *settings]).then(lambda: show(None), None, panels, **quick)


def _first(index: Any) -> int:
    return int(index[0] if isinstance(index, (list, tuple)) else index)
