"""Finds the files that ship with the app, from a checkout and from an installed wheel. Reads none of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Sample:
    """A picture to try, with a question about it."""

    path: Path
    question: str


def sample_pictures() -> list[Sample]:
    """Sample pictures that ship with the app; none when there are none."""
    try:
        listing = find_asset("samples/samples.json")
        rows = json.loads(listing.read_text("utf-8"))
        samples = [Sample(listing.parent / row["file"], row["question"]) for row in rows]
    except (Refusal, OSError, ValueError, KeyError, TypeError):
        return []
    return [one for one in samples if one.path.is_file()]


def demo_model() -> Path:
    """Directory of the embedded demo checkpoint."""
    try:
        return find_asset("demo/config.json").parent
    except Refusal:
        raise Refusal("The embedded demo model is not part of this installation; name a model with --model.") from None
