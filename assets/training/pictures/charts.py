"""Bar and line charts with a scale that can be read."""

from __future__ import annotations

import random

from PIL import Image, ImageDraw

from assets.training.material import Material, font_of
from assets.training.phrases import NUMBERS, article
from assets.training.pictures.canvas import COLOURS, Scene, ask, canvas_size, jitter

_LABELS = (
    ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), ("A", "B", "C", "D", "E", "F", "G"),
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul"), ("1", "2", "3", "4", "5", "6", "7"),
)  # fmt: skip
_TOPS = (10, 20, 50, 100, 200, 500, 1000)


class Frame:
    """Axes with ticks; turns values into places. Drawn large and not shrunk, so that small digits stay sharp."""

    def __init__(self, rng: random.Random, material: Material) -> None:
        width, height = canvas_size(rng)
        self.size = max(128, width), max(112, height)
        self.ground = jitter(rng, (247, 247, 247), 8)
        self.picture = Image.new("RGB", self.size, self.ground)
        self.pen = ImageDraw.Draw(self.picture)
        self.top = rng.choice(_TOPS)
        self.steps = rng.choice((2, 4, 5)) if self.top % 4 == 0 else rng.choice((2, 5))
        letters = max(9, min(self.size) // rng.randint(13, 18))
        self.font = font_of(rng.choice(material.fonts), letters)
        self.left = round(self.pen.textlength(str(self.top), font=self.font)) + rng.randint(6, 12)
        self.right, self.upper = self.size[0] - rng.randint(4, 12), rng.randint(letters, letters + 10)
        self.lower = self.size[1] - letters - rng.randint(4, 8)
        self._axes(rng)

    def _axes(self, rng: random.Random) -> None:
        grey = jitter(rng, (70, 70, 70), 30)
        lined = rng.random() < 0.6
        for step in range(self.steps + 1):
            value = self.top * step // self.steps
            y = self.y(value)
            if lined:
                self.pen.line([self.left, y, self.right, y], fill=(214, 214, 214))
            self.pen.line([self.left - 3, y, self.left, y], fill=grey)
            self.pen.text((self.left - 5, y), str(value), font=self.font, fill=grey, anchor="rm")
        self.pen.line([self.left, self.upper, self.left, self.lower], fill=grey, width=2)
        self.pen.line([self.left, self.lower, self.right, self.lower], fill=grey, width=2)

    def y(self, value: float) -> float:
        return self.lower - (self.lower - self.upper) * value / self.top

    def label(self, x: float, text: str) -> None:
        self.pen.text((x, self.lower + 3), text, font=self.font, fill=(40, 40, 40), anchor="ma")


def _values(rng: random.Random, count: int, top: int) -> list[int]:
    """Clearly different values, at least a fifth of the scale."""
    unit = max(1, top // 20)
    return [v * unit for v in rng.sample(range(max(2, top // unit // 5), top // unit + 1), count)]


def _about(value: int) -> str:
    return f"It is about {value}."


def bars(rng: random.Random, material: Material) -> Scene:
    frame, count = Frame(rng, material), rng.randint(3, 5)
    colours = rng.sample([c for c in COLOURS if c != "white"], count)
    values = _values(rng, count, frame.top)
    room = (frame.right - frame.left) / count
    thick, labels = room * rng.uniform(0.55, 0.85), rng.choice(_LABELS)
    written = rng.random() < 0.25
    for i, (colour, value) in enumerate(zip(colours, values, strict=True)):
        x = frame.left + room * (i + 0.5)
        box = [x - thick / 2, frame.y(value), x + thick / 2, frame.lower - 1]
        frame.pen.rectangle(box, fill=jitter(rng, COLOURS[colour]))
        frame.label(x, labels[i])
        if written:
            frame.pen.text((x, frame.y(value) - 1), str(value), font=frame.font, fill=(20, 20, 20), anchor="md")
    tall, short = colours[values.index(max(values))], colours[values.index(min(values))]
    one = rng.randrange(count)
    questions = [
        ask(rng, "largest", f"The {tall} bar is the tallest."),
        ask(rng, "smallest", f"The {short} bar is the shortest."),
        ask(rng, "bars", f"There are {NUMBERS[count]} bars."),
        ask(rng, "describe", f"This is a bar chart with {NUMBERS[count]} bars."),
        *(ask(rng, "value", _about(values[i]), c=colours[i]) for i in {one, (one + 1) % count}),
        ask(rng, "value_at", _about(values[one]), x=labels[one]),
    ]
    return Scene(frame.picture, questions, "a bar chart")


def lines(rng: random.Random, material: Material) -> Scene:
    frame, count = Frame(rng, material), rng.randint(4, 7)
    colour = rng.choice([c for c in COLOURS if c != "white"])
    up, labels = rng.random() < 0.5, rng.choice(_LABELS)
    ends = sorted((rng.uniform(0.15, 0.4), rng.uniform(0.65, 0.97)), reverse=not up)
    unit = max(1, frame.top // 20)
    path = [ends[0] + (ends[1] - ends[0]) * i / (count - 1) + rng.uniform(-0.07, 0.07) for i in range(count)]
    values = [round(min(1.0, max(0.1, p)) * frame.top / unit) * unit for p in path]
    room = (frame.right - frame.left) / count
    points = [(frame.left + room * (i + 0.5), frame.y(v)) for i, v in enumerate(values)]
    frame.pen.line(points, fill=jitter(rng, COLOURS[colour]), width=rng.randint(2, 4), joint="curve")
    if rng.random() < 0.6:
        for x, y in points:
            frame.pen.ellipse([x - 3, y - 3, x + 3, y + 3], fill=COLOURS[colour])
    for (x, _), label in zip(points, labels, strict=False):
        frame.label(x, label)
    way, one = "up" if up else "down", rng.randrange(count)
    questions = [
        ask(rng, "trend", f"The line goes {way}."),
        ask(rng, "trend", f"The line goes {way}."),
        ask(rng, "colour", f"The line is {colour}.", s="line"),
        ask(rng, "describe", f"This is a line chart. The {colour} line goes {way}."),
        ask(rng, "value_at", _about(values[one]), x=labels[one]),
    ]
    if values.count(max(values)) == 1:
        questions.append(ask(rng, "peak", f"The line is highest at {labels[values.index(max(values))]}."))
    if values.count(min(values)) == 1:
        questions.append(ask(rng, "low", f"The line is lowest at {labels[values.index(min(values))]}."))
    return Scene(frame.picture, questions, article(f"{colour} line chart"))


def chart(rng: random.Random, material: Material) -> Scene:
    return (bars if rng.random() < 0.65 else lines)(rng, material)
