"""Colours and fonts of the page. Fonts come from the system, so nothing is fetched."""

from __future__ import annotations

from typing import Any


def build_theme() -> Any:
    """The Gradio theme; dark mode follows the system."""
    import gradio as gr

    sans = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
    mono = ["ui-monospace", "SFMono-Regular", "Consolas", "monospace"]
    theme = gr.themes.Base(
        primary_hue="teal",
        neutral_hue="stone",
        font=sans,
        font_mono=mono,
        radius_size="md",
        text_size="md",
    )
    return theme.set(
        body_background_fill="#fbfaf8",
        body_background_fill_dark="#171614",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        input_background_fill="#ffffff",
        input_background_fill_dark="#211f1c",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color="white",
        button_primary_text_color_dark="white",
    )
