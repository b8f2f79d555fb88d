"""Colours, shapes and canvases for training pictures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple

from PIL import Image, ImageDraw

from assets.training.phrases import vary
from assets.training.pictures.questions import QUESTIONS

Colour = tuple[int, int, int]
COLOURS: dict[str, Colour] = {
    "red": (220, 30, 35), "orange": (250, 140, 20), "yellow": (250, 225, 40), "green": (40, 160, 60),
    "blue": (40, 80, 220), "purple": (130, 50, 170), "pink": (250, 140, 190), "brown": (125, 75, 35),
    "black": (15, 15, 15), "white": (250, 250, 250), "gray": (135, 135, 135),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring", "hexagon")
ZONES = (("top left", "top", "top right"), ("left", "center", "right"), ("bottom left", "bottom", "bottom right"))


class Question(NamedTuple):
    """A question about a picture. `kind` is a key of QUESTIONS."""

    kind: str
    text: str
    answer: str


class Scene(NamedTuple):
    """A picture and everything that may be asked about it, and what it shows in a few words."""

    picture: Image.Image
    questions: list[Question]
    shown: str


def ask(rng: random.Random, kind: str, answer: str, named: bool = False, **words: str) -> Question:
    """A training question in a random wording; words that carry the meaning are never misspelt.

    `named`: the question must name all of them, because the picture shows more than one thing.
    """
    keep = frozenset(part.lower() for word in words.values() for part in word.split())
    options = [t for t in QUESTIONS[kind] if all(f"{{{k}}}" not in t for k in "spcabrx" if k not in words)]
    if named:
        options = [t for t in options if all(f"{{{k}}}" in t for k in words)]
    return Question(kind, vary(rng, rng.choice(options).format(**words), keep), answer)


def jitter(rng: random.Random, colour: Colour, amount: int = 16) -> Colour:
    return tuple(max(0, min(255, v + rng.randint(-amount, amount))) for v in colour)  # type: ignore[return-value]


def canvas_size(rng: random.Random) -> tuple[int, int]:
    """Width and height from 64 to 320 pixels, from four times as wide as high to the opposite; small ones are common."""
    area = math.exp(rng.uniform(math.log(72**2), math.log(230**2)))
    ratio = math.exp(rng.choice((0.0, rng.uniform(-0.5, 0.5), rng.uniform(-1.4, 1.4))))
    width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
    return max(48, min(400, round(width))), max(48, min(400, round(height)))


def background(rng: random.Random, avoid: set[str]) -> tuple[str, Colour]:
    """A colour name that is not in `avoid`, mostly white."""
    plain = [n for n in COLOURS if n not in avoid]
    name = "white" if "white" in plain and rng.random() < 0.4 else rng.choice(plain)
    return name, jitter(rng, COLOURS[name], 8)


def _corners(
    count: int, radius: float, x: float, y: float, turn: float, inner: float | None = None
) -> list[tuple[float, float]]:
    made = []
    for i in range(count):
        r = radius if inner is None or i % 2 == 0 else inner
        angle = turn + 2 * math.pi * i / count
        made.append((x + r * math.sin(angle), y - r * math.cos(angle)))
    return made


Draw = ImageDraw.ImageDraw


def _heart(d: Draw, x: float, y: float, r: float, c: Colour) -> None:
    q = r * 0.55
    d.ellipse([x - q * 1.9, y - q * 1.5, x + q * 0.1, y + q * 0.5], fill=c)
    d.ellipse([x - q * 0.1, y - q * 1.5, x + q * 1.9, y + q * 0.5], fill=c)
    d.polygon([(x - q * 1.78, y - q * 0.05), (x + q * 1.78, y - q * 0.05), (x, y + r * 1.05)], fill=c)


def _cross(d: Draw, x: float, y: float, r: float, c: Colour) -> None:
    w = r * 0.35
    d.rectangle([x - w, y - r, x + w, y + r], fill=c)
    d.rectangle([x - r, y - w, x + r, y + w], fill=c)


def draw_shape(rng: random.Random, d: Draw, shape: str, x: float, y: float, r: float, c: Colour) -> None:
    """A filled shape of about radius r around (x, y)."""
    simple: dict[str, Callable[[], None]] = {
        "circle": lambda: d.ellipse([x - r, y - r, x + r, y + r], fill=c),
        "ring": lambda: d.ellipse(
            [x - r, y - r, x + r, y + r], outline=c, width=max(2, round(r * rng.uniform(0.3, 0.5)))
        ),
        "square": lambda: d.rectangle([x - r * 0.85, y - r * 0.85, x + r * 0.85, y + r * 0.85], fill=c),
        "triangle": lambda: d.polygon(_corners(3, r * 1.1, x, y + r * 0.15, rng.uniform(-0.15, 0.15)), fill=c),
        "star": lambda: d.polygon(
            _corners(10, r * 1.1, x, y, rng.uniform(-0.2, 0.2), r * rng.uniform(0.42, 0.52)), fill=c
        ),
        "diamond": lambda: d.polygon(
            [(x, y - r * 1.1), (x + r * 0.75, y), (x, y + r * 1.1), (x - r * 0.75, y)], fill=c
        ),
        "hexagon": lambda: d.polygon(_corners(6, r, x, y, rng.choice((0.0, math.pi / 6))), fill=c),
        "cross": lambda: _cross(d, x, y, r, c),
        "heart": lambda: _heart(d, x, y, r, c),
    }
    simple[shape]()


def smooth(picture: Image.Image, factor: int) -> Image.Image:
    """Shrink a picture that was drawn `factor` times too large."""
    return picture.resize((picture.width // factor, picture.height // factor), Image.Resampling.BOX)


def place_answer(zone: str) -> str:
    return "It is in the center." if zone == "center" else f"It is {at_zone(zone)}."


def at_zone(zone: str) -> str:
    """With its preposition."""
    if zone == "center":
        return "in the center"
    return f"on the {zone}" if zone in ("left", "right") else f"at the {zone}"
