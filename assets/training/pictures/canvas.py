"""Colours, shapes and canvases for training pictures."""

from __future__ import annotations

import colorsys
import io
import math
import random
from typing import NamedTuple, TypeAlias

from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter

from assets.training.phrases import vary
from assets.training.pictures.questions import choose

Colour = tuple[int, int, int]
COLOURS: dict[str, Colour] = {
    "red": (220, 30, 35), "orange": (250, 140, 20), "yellow": (250, 225, 40), "green": (40, 160, 60),
    "blue": (40, 80, 220), "purple": (130, 50, 170), "pink": (250, 140, 190), "brown": (125, 75, 35),
    "black": (15, 15, 15), "white": (250, 250, 250), "gray": (135, 135, 135),
}  # fmt: skip
# Hue in degrees, saturation and lightness in percent: all that most people would call by this name, none that is arguable.
_TONES: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "red": ((-8, 6), (78, 100), (66, 100)), "orange": ((23, 36), (80, 100), (92, 100)), "yellow": ((48, 60), (60, 100), (90, 100)),
    "green": ((92, 152), (45, 100), (38, 85)), "blue": ((206, 240), (58, 100), (55, 100)),
    "purple": ((266, 292), (45, 90), (42, 80)), "pink": ((318, 345), (28, 58), (94, 100)), "brown": ((18, 32), (50, 85), (36, 58)),
    "black": ((0, 360), (0, 30), (0, 11)), "white": ((0, 360), (0, 4), (95, 100)), "gray": ((0, 360), (0, 7), (42, 68)),
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
    return Question(kind, vary(rng, choose(rng, kind, frozenset(words), named).format(**words), keep), answer)


def jitter(rng: random.Random, colour: Colour, amount: int = 20) -> Colour:
    return tuple(max(0, min(255, v + rng.randint(-amount, amount))) for v in colour)  # type: ignore[return-value]


def tone(rng: random.Random, name: str, against: Colour | None = None) -> Colour:
    """A colour of this name, half of the time near the usual one, and visible on `against`."""
    made = COLOURS[name]
    for _ in range(6):
        if rng.random() < 0.6 or name == "gray":  # jitter would give gray a tint
            hue, full, light = (rng.uniform(*span) for span in _TONES[name])
            r, g, b = colorsys.hsv_to_rgb(hue % 360 / 360, full / 100, light / 100)
            made = round(r * 255), round(g * 255), round(b * 255)
        else:
            made = jitter(rng, COLOURS[name])
        if against is None or far(made, against):
            break
    return made


def far(one: Colour, other: Colour) -> bool:
    """Whether one can be seen on the other."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 140


def shaded(colour: Colour, part: float) -> Colour:
    """Darker below 1, paler above."""
    return tuple(round(v * part if part < 1 else 255 - (255 - v) * (2 - part)) for v in colour)  # type: ignore[return-value]


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
    return name, tone(rng, name) if rng.random() < 0.5 or name == "gray" else jitter(rng, COLOURS[name], 8)


def _corners(
    count: int, radius: float, x: float, y: float, turn: float, inner: float | None = None
) -> list[tuple[float, float]]:
    made = []
    for i in range(count):
        r = radius if inner is None or i % 2 == 0 else inner
        angle = turn + 2 * math.pi * i / count
        made.append((x + r * math.sin(angle), y - r * math.cos(angle)))
    return made


Draw: TypeAlias = ImageDraw.ImageDraw
Points = list[tuple[float, float]]


def ground_picture(rng: random.Random, size: tuple[int, int], colour: Colour) -> Image.Image:
    """Mostly plain, sometimes a little paler to one side or with a pattern, never of another colour."""
    draw = rng.random()
    if draw < 0.7:
        return Image.new("RGB", size, colour)
    low = shaded(colour, rng.uniform(0.8, 0.95))
    high = shaded(colour, rng.uniform(1.02, 1.12))
    if draw < 0.88:
        ramp = Image.linear_gradient("L") if rng.random() < 0.6 else Image.radial_gradient("L")
        mask = ramp.rotate(rng.choice((0, 90, 180, 270))).resize(size)
        return Image.composite(Image.new("RGB", size, low), Image.new("RGB", size, high), mask)
    picture = Image.new("RGB", size, colour)
    pen, step = ImageDraw.Draw(picture), rng.randint(8, 24)
    for at in range(0, max(size), step):
        if draw < 0.95:
            pen.line([at, 0, at, size[1]], fill=low)
        pen.line([0, at, size[0], at], fill=low)
    return picture


def _turned(points: Points, x: float, y: float, turn: float) -> Points:
    cos, sin = math.cos(turn), math.sin(turn)
    return [(x + (a - x) * cos - (b - y) * sin, y + (a - x) * sin + (b - y) * cos) for a, b in points]


def _heart(rng: random.Random, x: float, y: float, r: float) -> Points:
    steps = [2 * math.pi * i / 36 for i in range(36)]
    wide = r / 16 * rng.uniform(0.95, 1.12)
    return [
        (
            x + wide * 16 * math.sin(t) ** 3,
            y - r / 16 * (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)),
        )
        for t in steps
    ]


def _cross(rng: random.Random, x: float, y: float, r: float) -> Points:
    w = r * rng.uniform(0.22, 0.4)
    arm = [(-w, -r), (w, -r), (w, -w), (r, -w), (r, w), (w, w), (w, r), (-w, r), (-w, w), (-r, w), (-r, -w), (-w, -w)]
    return [(x + a, y + b) for a, b in arm]


def _outline(rng: random.Random, shape: str, x: float, y: float, r: float) -> Points:
    """The corners of a shape of about radius r around (x, y), turned a little."""
    if shape in ("circle", "ring"):
        return _corners(48, r, x, y, 0.0)
    wide = rng.uniform(0.72, 0.88)
    points = {
        "square": lambda: [(x + a * r * 0.85, y + b * r * 0.85) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))],
        "triangle": lambda: [
            (x, y - r * 1.05),
            (x + r * wide * 1.25, y + r * 0.75),
            (x - r * wide * 1.25, y + r * 0.75),
        ],
        "star": lambda: _corners(10, r * 1.1, x, y, 0.0, r * rng.uniform(0.4, 0.54)),
        "diamond": lambda: [(x, y - r * 1.1), (x + r * wide, y), (x, y + r * 1.1), (x - r * wide, y)],
        "hexagon": lambda: _corners(6, r, x, y, rng.choice((0.0, math.pi / 6))),
        "cross": lambda: _cross(rng, x, y, r),
        "heart": lambda: _heart(rng, x, y, r),
    }[shape]()
    if rng.random() < 0.5:
        return points
    turn = rng.gauss(0, 0.11)
    if shape == "triangle" and rng.random() < 0.25:
        turn += math.pi
    if shape == "square":  # a square on its corner would be a diamond
        turn = max(-0.2, min(0.2, turn))
    return _turned(points, x, y, max(-0.3, min(0.3, turn)) if abs(turn) < 2 else turn)


def draw_shape(
    rng: random.Random, d: Draw, shape: str, x: float, y: float, r: float, c: Colour, ground: Colour | None = None
) -> None:
    """A shape of about radius r around (x, y): filled, now and then with an edge or a shadow, or drawn as a thick line."""
    points, style = _outline(rng, shape, x, y, r), rng.random()
    if shape == "ring":
        box = [x - r, y - r, x + r, y + r]
        d.ellipse(box, outline=c, width=max(2, round(r * rng.uniform(0.24, 0.5))))
        return
    if style < 0.06 and r > 14 and ground:
        shift = r * rng.uniform(0.06, 0.14)
        d.polygon([(a + shift, b + shift) for a, b in points], fill=shaded(ground, rng.uniform(0.6, 0.85)))
    if (
        style > 0.93 and shape != "circle" and r > 14 and sum(c) > 120
    ):  # a hollow circle is a ring, a black edge has white in it
        d.line([*points, *points[:2]], fill=c, width=max(3, round(r * rng.uniform(0.18, 0.3))), joint="curve")
        return
    d.polygon(points, fill=c)
    if 0.06 < style < 0.2 and r > 14:
        edge = shaded(c, rng.uniform(0.3, 0.7)) if rng.random() < 0.6 or sum(c) < 200 else (15, 15, 15)
        d.line([*points, *points[:2]], fill=edge, width=max(1, round(r * rng.uniform(0.04, 0.1))), joint="curve")


def smooth(picture: Image.Image, factor: int) -> Image.Image:
    """Shrink a picture that was drawn `factor` times too large."""
    return picture.resize((picture.width // factor, picture.height // factor), Image.Resampling.BOX)


def worn(rng: random.Random, picture: Image.Image) -> Image.Image:
    """As pictures are after some travelling: compressed, blurred, noisy, darker or paler. Half of them stay as they are."""
    draw = rng.random()
    if draw < 0.15:
        held = io.BytesIO()
        picture.convert("RGB").save(held, "JPEG", quality=rng.randint(45, 90))
        return Image.open(held).convert("RGB")
    if draw < 0.25:
        return picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    if draw < 0.35:
        grain = Image.effect_noise(picture.size, rng.uniform(4, 22)).convert("RGB")
        return Image.blend(
            picture.convert("RGB"), ImageChops.overlay(picture.convert("RGB"), grain), rng.uniform(0.3, 0.9)
        )
    if draw < 0.5:
        return ImageEnhance.Brightness(picture).enhance(rng.uniform(0.85, 1.08))
    return picture


def place_answer(zone: str) -> str:
    return "It is in the center." if zone == "center" else f"It is {at_zone(zone)}."


def at_zone(zone: str) -> str:
    """With its preposition."""
    if zone == "center":
        return "in the center"
    return f"on the {zone}" if zone in ("left", "right") else f"at the {zone}"
