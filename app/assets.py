"""Finds the files that ship with the app, from a checkout and from an installed wheel. Reads none of them."""

from __future__ import annotations

from pathlib import Path

from app.refusals import Refusal

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE.parent / "assets", _HERE / "_assets")


def find_asset(name: str) -> Path:
    """Path of the asset `name`, for instance `demo` or `page/page.css`."""
    for place in _PLACES:
        if (place / name).exists():
            return place / name
    raise Refusal(f"The installation is incomplete: its file '{name}' is missing; install the app again.")


def demo_model() -> Path:
    """Directory of the embedded demo checkpoint."""
    try:
        return find_asset("demo/config.json").parent
    except Refusal:
        raise Refusal("The embedded demo model is not part of this installation; name a model with --model.") from None
