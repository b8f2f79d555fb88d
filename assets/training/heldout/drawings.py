"""Pictures for the evaluation, drawn by other means than the training pictures: every outline is a polygon on a
three times larger canvas shrunk with Lanczos, colours, sizes, aspect ratios, fonts and chart layout are others."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from PIL import Image, ImageDraw

from assets.training.heldout.items import SHAPES
from assets.training.material import Icons, font_of, icon_image

Rgb = tuple[int, int, int]
PALETTE: dict[str, Rgb] = {
    "red": (196, 24, 52), "orange": (240, 126, 8), "yellow": (240, 212, 20), "green": (28, 140, 84), "blue": (30, 104, 200),
    "purple": (116, 62, 190), "pink": (244, 128, 176), "brown": (112, 66, 30), "black": (28, 26, 30), "white": (244, 244, 240),
    "gray": (124, 130, 134),
}  # fmt: skip
GROUNDS: dict[str, Rgb] = {"white": (255, 253, 248), "black": (22, 24, 28), "gray": (150, 148, 144)}
SIZES = ((96, 96), (128, 96), (224, 160), (100, 240), (250, 84), (176, 176), (256, 200), (140, 256), (320, 180))
_SCALE = 3


class Figure(NamedTuple):
    """A shape: centre in parts of width and height, radius in parts of the smaller side."""

    shape: str
    colour: str
    x: float
    y: float
    radius: float

    @property
    def zone(self) -> str:
        row = ("top", "", "bottom")[min(2, int(self.y * 3))]
        column = ("left", "", "right")[min(2, int(self.x * 3))]
        return f"{row} {column}".strip() or "center"


def _around(count: int, radius: float, turn: float = 0.0) -> list[tuple[float, float]]:
    return [
        (radius * math.sin(turn + 2 * math.pi * i / count), -radius * math.cos(turn + 2 * math.pi * i / count))
        for i in range(count)
    ]


def outline(shape: str, turn: float) -> list[tuple[float, float]]:
    """Corners of a shape of radius one."""
    if shape in ("circle", "ring"):
        return _around(48, 1.0)
    if shape == "heart":
        steps = [2 * math.pi * i / 60 for i in range(60)]
        return [
            (math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 15)
            for t in steps
        ]
    if shape == "star":
        outer, inner = _around(5, 1.08, turn), _around(5, 0.45, turn + math.pi / 5)
        return [corner for pair in zip(outer, inner, strict=True) for corner in pair]
    if shape == "cross":
        w = 0.3
        return [
            (-w, -1),
            (w, -1),
            (w, -w),
            (1, -w),
            (1, w),
            (w, w),
            (w, 1),
            (-w, 1),
            (-w, w),
            (-1, w),
            (-1, -w),
            (-w, -w),
        ]
    if shape == "diamond":
        return [(0, -1.05), (0.7, 0), (0, 1.05), (-0.7, 0)]
    return {
        "square": _around(4, 1.15, math.pi / 4),
        "triangle": _around(3, 1.1, turn),
        "hexagon": _around(6, 1.0, math.pi / 6),
    }[shape]


def figures_picture(rng: random.Random, figures: list[Figure], ground: Rgb, size: tuple[int, int]) -> Image.Image:
    width, height = (n * _SCALE for n in size)
    picture = Image.new("RGB", (width, height), ground)
    pen = ImageDraw.Draw(picture)
    for figure in figures:
        radius, turn = figure.radius * min(width, height), rng.uniform(-0.1, 0.1)
        x = min(max(figure.x * width, radius * 1.15), width - radius * 1.15)
        y = min(max(figure.y * height, radius * 1.15), height - radius * 1.15)
        corners = [(x + radius * u, y + radius * v) for u, v in outline(figure.shape, turn)]
        pen.polygon(corners, fill=PALETTE[figure.colour])
        if figure.shape == "ring":
            pen.polygon([(x + radius * 0.6 * u, y + radius * 0.6 * v) for u, v in outline("ring", 0)], fill=ground)
    return picture.resize(size, Image.Resampling.LANCZOS)


def scattered(rng: random.Random, count: int, ground: str, kinds: tuple[str, ...] = SHAPES) -> list[Figure]:
    """Figures in different ninths, away from the borders between them."""
    colours = [c for c in PALETTE if c != ground]
    made = []
    for cell in rng.sample(range(9), count):
        x, y = ((n + 0.5 + rng.uniform(-0.22, 0.22)) / 3 for n in (cell % 3, cell // 3))
        made.append(Figure(rng.choice(kinds), rng.choice(colours), x, y, rng.uniform(0.08, 0.13)))
    return made


class BarChart(NamedTuple):
    picture: Image.Image
    colours: list[str]
    values: list[int]


def _scale(pen: ImageDraw.ImageDraw, font: object, box: tuple[int, int, int, int], top: int, steps: int) -> None:
    """Tick labels right of the plot's left border line, dashes instead of lines across."""
    left, upper, right, lower = box
    for step in range(steps + 1):
        y = lower - (lower - upper) * step / steps
        pen.text((left - 4, y), str(top * step // steps), font=font, fill=(90, 84, 80), anchor="rm")  # type: ignore[arg-type]
        for x in range(left, right, 9):
            pen.line([x, y, x + 3, y], fill=(206, 202, 198))
    pen.line([left, upper, left, lower], fill=(60, 56, 54))


def _plot(
    rng: random.Random, font_path: str
) -> tuple[Image.Image, ImageDraw.ImageDraw, tuple[int, int, int, int], int]:
    width, height = rng.choice(((150, 130), (210, 150), (240, 200), (280, 140), (160, 220)))
    picture = Image.new("RGB", (width, height), (252, 250, 244))
    pen = ImageDraw.Draw(picture)
    top, steps = rng.choice(((8, 4), (40, 4), (60, 3), (80, 4), (120, 4), (300, 3)))
    font = font_of(font_path, 12)
    box = (12 + round(pen.textlength(str(top), font=font)), 12, width - 10, height - 12)
    _scale(pen, font, box, top, steps)
    return picture, pen, box, top


def bar_chart(rng: random.Random, font_path: str) -> BarChart:
    picture, pen, (left, upper, right, lower), top = _plot(rng, font_path)
    count = rng.randint(3, 5)
    colours = rng.sample([c for c in PALETTE if c != "white"], count)
    values = [round(top * part / 20) for part in rng.sample(range(5, 21), count)]
    room = (right - left) / count
    for i, (name, value) in enumerate(zip(colours, values, strict=True)):
        x = left + room * i + room * 0.2
        y = lower - (lower - upper) * value / top
        pen.rectangle([x, y, x + room * 0.6, lower], fill=PALETTE[name], outline=(50, 46, 44))
    return BarChart(picture, colours, values)


def line_chart(rng: random.Random, font_path: str) -> tuple[Image.Image, bool]:
    """A picture, and whether the line rises."""
    picture, pen, (left, upper, right, lower), _ = _plot(rng, font_path)
    rises, count = rng.random() < 0.5, rng.randint(5, 9)
    levels = [0.2 + 0.6 * i / (count - 1) + rng.uniform(-0.06, 0.06) for i in range(count)]
    levels = levels if rises else levels[::-1]
    points = [(left + (right - left) * (i + 0.3) / count, lower - (lower - upper) * v) for i, v in enumerate(levels)]
    pen.line(points, fill=PALETTE[rng.choice([c for c in PALETTE if c != "white"])], width=3)
    return picture, rises


def printed_text(rng: random.Random, text: str, font_path: str) -> Image.Image:
    """Dark on light or light on dark, centred, in one of several heights."""
    letters = rng.choice((22, 30, 42, 56))
    font = font_of(font_path, letters)
    left, top, right, bottom = font.getbbox(text)
    width, height = round(right - left) + rng.randint(12, 60), round(bottom - top) + rng.randint(14, 70)
    ink, ground = rng.choice(
        (((30, 30, 44), (250, 246, 236)), ((240, 240, 250), (36, 52, 84)), ((130, 20, 30), (236, 236, 236)))
    )
    picture = Image.new("RGB", (max(64, width), max(64, height)), ground)
    ImageDraw.Draw(picture).text((picture.width / 2, picture.height / 2), text, font=font, fill=ink, anchor="mm")
    return picture


def icon_picture(rng: random.Random, icons: Icons, row: int) -> Image.Image:
    style = next(s for s in range(len(icons.styles)) if icons.have[row, s])
    width, height = rng.choice(((110, 110), (150, 120), (128, 190), (200, 200), (230, 140)))
    picture = Image.new("RGB", (width, height), rng.choice(((255, 255, 255), (242, 246, 250), (255, 248, 230))))
    side = round(min(width, height) * rng.uniform(0.7, 0.9))
    image = icon_image(icons, row, style).resize((side, side), Image.Resampling.BICUBIC)
    picture.paste(image, ((width - side) // 2, (height - side) // 2), image)
    return picture
