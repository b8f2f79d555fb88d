"""The sample pictures of the page's empty state: a few calm drawings, made here so that they belong to us.

python -m assets.training.samples assets/samples
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image, ImageDraw

from assets.training.heldout.drawings import outline

SIDE, SCALE = 384, 3
INK = (58, 62, 70)


def _canvas(ground: tuple[int, int, int]) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("RGB", (SIDE * SCALE, SIDE * SCALE), ground)
    return picture, ImageDraw.Draw(picture)


def _done(picture: Image.Image) -> Image.Image:
    return picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def _box(*numbers: float) -> list[float]:
    """Corners given in parts of the side."""
    return [n * SIDE * SCALE for n in numbers]


def chart() -> Image.Image:
    """A bar chart with three bars."""
    picture, pen = _canvas((249, 248, 246))
    pen.line(_box(0.09, 0.08, 0.09, 0.9), fill=INK, width=4 * SCALE)
    pen.line(_box(0.09, 0.9, 0.9, 0.9), fill=INK, width=4 * SCALE)
    bars = ((40, 80, 220), 0.44), ((250, 140, 20), 0.74), ((40, 160, 60), 0.22)
    for i, (colour, height) in enumerate(bars):
        left = 0.13 + 0.258 * i
        pen.rectangle(_box(left, 0.9 - height, left + 0.18, 0.895), fill=colour)
    return _done(picture)


def circles() -> Image.Image:
    """Three blue circles on white."""
    picture, pen = _canvas((250, 250, 250))
    for x, y, r in ((0.2, 0.21, 0.11), (0.79, 0.5, 0.13), (0.3, 0.8, 0.12)):
        pen.ellipse(_box(x - r, y - r, x + r, y + r), fill=(40, 80, 220))
    return _done(picture)


def heart() -> Image.Image:
    """One red heart."""
    picture, pen = _canvas((250, 250, 250))
    corners = [(0.5 + 0.21 * u, 0.48 + 0.21 * v) for u, v in outline("heart", 0.0)]
    pen.polygon([(x * SIDE * SCALE, y * SIDE * SCALE) for x, y in corners], fill=(220, 30, 35))
    return _done(picture)


SAMPLES = (
    ("chart.png", chart, "Which bar is the shortest?"),
    ("circles.png", circles, "How many circles are there?"),
    ("heart.png", heart, "What do you see?"),
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.samples", description=__doc__)
    parser.add_argument("out", type=Path)
    wishes = parser.parse_args(arguments)
    wishes.out.mkdir(parents=True, exist_ok=True)
    for name, draw, _ in SAMPLES:
        draw().quantize(64).save(wishes.out / name, optimize=True)
    listed = [{"file": name, "question": question} for name, _, question in SAMPLES]
    (wishes.out / "samples.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
