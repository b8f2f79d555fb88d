"""An error as one line of text for a terminal. Knows no command."""

from __future__ import annotations


def one_sentence(error: BaseException) -> str:
    """The error's text on one line, ending in a full stop; its kind when it says nothing."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if text.endswith((".", "!", "?", ")")) else text + "."
