"""Builds the parts of the page and names them. Attaches no events; see wiring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.assets import Sample, sample_pictures

LATEX = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]
MAX_PASTED_CHARS = 1_000_000
MAX_SAMPLES = 3


@dataclass(frozen=True)
class Parts:
    """Every component that an event reads or writes."""

    place: Any
    kick: Any
    taken: Any
    pulse: Any
    new: Any
    import_: Any
    search: Any
    list: Any
    model_line: Any
    title: Any
    rename_open: Any
    delete_open: Any
    export_open: Any
    memory_open: Any
    settings_open: Any
    rename_panel: Any
    rename_text: Any
    rename_save: Any
    rename_cancel: Any
    delete_panel: Any
    delete_text: Any
    delete_yes: Any
    delete_no: Any
    export_panel: Any
    export: Any
    export_close: Any
    memory_panel: Any
    memory: Any
    settings_panel: Any
    system: Any
    temperature: Any
    max_tokens: Any
    seed: Any
    thinking: Any
    settings_close: Any
    older: Any
    empty: Any
    examples_row: Any
    examples: tuple[Any, ...]
    samples_row: Any
    samples: tuple[tuple[Any, Sample], ...]
    transcript: Any
    live: Any
    live_line: Any
    actions_row: Any
    previous: Any
    versions: Any
    following: Any
    go_on: Any
    composer: Any
    meter: Any
    notice: Any


def build_parts() -> Parts:
    """Build everything inside an open Blocks context."""
    parts: dict[str, Any] = {}
    _build_hidden(parts)
    _build_sidebar(parts)
    with gr.Column(elem_id="chat"):
        _build_header(parts)
        _build_panels(parts)
        with gr.Column(elem_id="scroll"):
            _build_transcript(parts)
        _build_composer(parts)
    return Parts(**parts)


def _build_hidden(parts: dict[str, Any]) -> None:
    # The place is kept by the page, not by the server, so that an open page survives a restart of the app.
    parts["place"] = gr.Textbox(visible="hidden", elem_id="place")
    parts["kick"] = gr.Textbox(visible="hidden", elem_id="kick")
    parts["taken"] = gr.Textbox(visible="hidden", elem_id="taken")
    parts["pulse"] = gr.Timer(1.0, active=False)


def _build_sidebar(parts: dict[str, Any]) -> None:
    with gr.Sidebar(elem_id="side", width=290):
        parts["new"] = gr.Button("New conversation", elem_id="new", variant="secondary", size="md")
        parts["search"] = gr.Textbox(
            placeholder="Search conversations", show_label=False, container=False, elem_id="search", max_lines=1
        )
        parts["list"] = gr.Radio(choices=[], show_label=False, container=False, elem_id="list")
        parts["import_"] = gr.UploadButton(
            "Import a conversation", elem_id="import", file_types=[".zip"], size="sm", variant="secondary"
        )


def _build_header(parts: dict[str, Any]) -> None:
    with gr.Row(elem_id="header"):
        parts["title"] = gr.HTML("New conversation", elem_id="title", apply_default_css=False)
        parts["model_line"] = gr.HTML("", elem_id="model", apply_default_css=False)
        parts["rename_open"] = gr.Button("Rename", elem_id="rename", size="sm", variant="secondary", visible=False)
        parts["export_open"] = gr.Button("Export", elem_id="export", size="sm", variant="secondary", visible=False)
        parts["delete_open"] = gr.Button("Delete", elem_id="delete", size="sm", variant="secondary", visible=False)
        parts["memory_open"] = gr.Button("Memory", elem_id="memory", size="sm", variant="secondary")
        parts["settings_open"] = gr.Button("Settings", elem_id="settings", size="sm", variant="secondary")


def _build_panels(parts: dict[str, Any]) -> None:
    with gr.Row(visible=False, elem_classes="dz-panel", elem_id="rename-panel") as parts["rename_panel"]:
        parts["rename_text"] = gr.Textbox(
            show_label=False, container=False, max_lines=1, elem_id="rename-text", placeholder="Name", scale=4
        )
        parts["rename_save"] = gr.Button("Save", variant="primary", size="sm", elem_id="rename-save")
        parts["rename_cancel"] = gr.Button("Cancel", size="sm")
    with gr.Row(visible=False, elem_classes="dz-panel", elem_id="delete-panel") as parts["delete_panel"]:
        parts["delete_text"] = gr.HTML("Delete this conversation and its pictures for good?", elem_id="delete-text")
        parts["delete_yes"] = gr.Button("Delete", variant="stop", size="sm", elem_id="delete-yes")
        parts["delete_no"] = gr.Button("Keep", size="sm", elem_id="delete-no")
    with gr.Row(visible=False, elem_classes="dz-panel", elem_id="export-panel") as parts["export_panel"]:
        parts["export"] = gr.HTML("", elem_id="export-links", apply_default_css=False)
        parts["export_close"] = gr.Button("Done", size="sm", elem_id="export-close")
    with gr.Column(visible=False, elem_classes="dz-panel", elem_id="memory-panel") as parts["memory_panel"]:
        parts["memory"] = gr.HTML("", elem_id="memory-text", apply_default_css=False)
    with gr.Column(visible=False, elem_classes="dz-panel", elem_id="settings-panel") as parts["settings_panel"]:
        parts["system"] = gr.Textbox(
            label="Instructions for this conversation",
            lines=2,
            max_lines=6,
            elem_id="system",
            placeholder="For instance: answer in short sentences",
        )
        with gr.Row():
            parts["temperature"] = gr.Number(
                label="Temperature",
                minimum=0,
                maximum=5,
                step=0.1,
                value=None,
                min_width=110,
                elem_id="temperature",
                placeholder="model's own",
            )
            parts["max_tokens"] = gr.Number(
                label="Longest answer, tokens",
                minimum=1,
                precision=0,
                value=None,
                min_width=110,
                elem_id="max-tokens",
                placeholder="no limit",
            )
            parts["seed"] = gr.Number(
                label="Seed", precision=0, value=None, min_width=110, elem_id="seed", placeholder="random"
            )
            parts["thinking"] = gr.Dropdown(
                label="Thinking",
                choices=[("Model's choice", "auto"), ("On", "on"), ("Off", "off")],
                value="auto",
                min_width=130,
                elem_id="thinking",
                filterable=False,
            )
        parts["settings_close"] = gr.Button("Done", size="sm", elem_id="settings-close")


def _build_transcript(parts: dict[str, Any]) -> None:
    parts["older"] = gr.Button("Load older messages", visible=False, size="sm", elem_id="older")
    parts["empty"] = gr.Markdown("", elem_id="empty", sanitize_html=True)
    with gr.Row(elem_id="examples") as parts["examples_row"]:
        parts["examples"] = tuple(gr.Button("", size="sm", visible=False, elem_classes="dz-example") for _ in range(3))
    with gr.Row(elem_id="samples", visible=False) as parts["samples_row"]:
        parts["samples"] = tuple(
            (gr.Button(one.question, icon=str(one.path), size="sm", elem_classes="dz-sample"), one)
            for one in sample_pictures()[:MAX_SAMPLES]
        )
    look: dict[str, Any] = {
        "show_label": False,
        "container": False,
        "height": None,
        "autoscroll": False,
        "buttons": ["copy"],
        "sanitize_html": True,
        "allow_tags": False,
        "latex_delimiters": LATEX,
        "layout": "bubble",
        "feedback_options": None,
        "allow_file_downloads": False,
    }
    parts["transcript"] = gr.Chatbot(elem_id="transcript", visible=False, **look)
    parts["live"] = gr.Chatbot(elem_id="live", visible=False, **{**look, "buttons": []})
    parts["live_line"] = gr.HTML("", elem_id="live-line", apply_default_css=False)
    with gr.Row(visible=False, elem_id="actions") as parts["actions_row"]:
        parts["previous"] = gr.Button("‹", size="sm", elem_id="previous", min_width=32)
        parts["versions"] = gr.HTML("", elem_id="versions", apply_default_css=False)
        parts["following"] = gr.Button("›", size="sm", elem_id="following", min_width=32)
        parts["go_on"] = gr.Button("Continue", size="sm", elem_id="go-on", min_width=90)


def _build_composer(parts: dict[str, Any]) -> None:
    with gr.Column(elem_id="bottom"):
        parts["notice"] = gr.HTML("", elem_id="notice", apply_default_css=False)
        parts["composer"] = gr.MultimodalTextbox(
            show_label=False,
            container=False,
            placeholder="Write a message, or drop a picture",
            file_types=["image"],
            file_count="multiple",
            sources=["upload"],
            lines=1,
            max_lines=12,
            max_plain_text_length=MAX_PASTED_CHARS,
            autofocus=True,
            interactive=False,  # until the page knows which conversation it shows
            submit_btn=True,
            stop_btn=False,
            elem_id="composer",
        )
        parts["meter"] = gr.HTML("", elem_id="meter", apply_default_css=False)
