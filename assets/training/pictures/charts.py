"""Bar and line charts with a scale that can be read."""

from __future__ import annotations

import itertools
import random

from PIL import Image, ImageDraw

from assets.training.material import Material, font_of
from assets.training.phrases import NUMBERS, article
from assets.training.pictures.canvas import COLOURS, Question, Scene, ask, canvas_size, far, jitter, shaded, tone

_LABELS = (
    ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), ("A", "B", "C", "D", "E", "F", "G"),
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul"), ("1", "2", "3", "4", "5", "6", "7"),
    ("P", "Q", "R", "S", "T", "U", "V"), ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7"),
    ("2019", "2020", "2021", "2022", "2023", "2024", "2025"), ("tea", "milk", "juice", "water", "soda", "cola", "wine"),
    ("North", "East", "South", "West", "Center", "Coast", "Hills"), ("Ann", "Ben", "Eve", "Tom", "Joe", "Kim", "Max"),
)  # fmt: skip
_ANY_WIDTH = _LABELS[1]  # fits where longer ones would run into each other
_TITLES = ("Sales", "Chart", "Results", "Visitors", "Data", "Figure 1", "Report", "Total", "Per day", "Survey")
# Top of the scale and the steps up to it.
_SCALES = (
    (6, 3), (6, 6), (8, 4), (8, 2), (10, 2), (10, 5), (12, 4), (12, 3), (15, 3), (16, 4), (20, 2), (20, 4), (20, 5), (25, 5),
    (30, 3), (40, 4), (40, 2), (50, 2), (50, 5), (60, 3), (60, 4), (60, 6), (80, 4), (90, 3), (100, 2), (100, 4), (100, 5),
    (120, 4), (120, 3), (150, 3), (160, 4), (200, 2), (200, 4), (200, 5), (250, 5), (300, 3), (400, 4), (500, 2), (500, 5),
    (600, 3), (800, 4), (1000, 2), (1000, 4), (1000, 5),
)  # fmt: skip
_DARK_INK, _PALE_INK = (45, 45, 45), (215, 215, 215)


class Frame:
    """Axes with ticks; turns values into places. Drawn large and not shrunk, so that small digits stay sharp."""

    def __init__(self, rng: random.Random, material: Material) -> None:
        width, height = canvas_size(rng)
        self.size = max(128, width), max(112, height)
        dark = rng.random() < 0.12
        self.ground = jitter(rng, (28, 30, 38) if dark else (247, 247, 247), 8)
        self.ink = jitter(rng, _PALE_INK if dark else _DARK_INK, 35)
        self.picture = Image.new("RGB", self.size, self.ground)
        self.pen = ImageDraw.Draw(self.picture)
        self.top, self.steps = rng.choice(_SCALES)
        letters = max(9, min(self.size) // rng.randint(12, 18))
        self.font = font_of(rng.choice(material.fonts), letters)
        scale, margin = round(self.pen.textlength(str(self.top), font=self.font)), rng.randint(4, 12)
        self.on_right = rng.random() < 0.08
        self.left = margin if self.on_right else scale + rng.randint(6, 14)
        self.right = self.size[0] - (scale + rng.randint(6, 14) if self.on_right else margin)
        self.upper = rng.randint(letters, letters + 10)
        if rng.random() < 0.25:
            self.pen.text((self.size[0] / 2, 2), rng.choice(_TITLES), font=self.font, fill=self.ink, anchor="ma")
            self.upper += letters + 2
        self.lower = self.size[1] - letters - rng.randint(4, 8)
        self._axes(rng)

    def _axes(self, rng: random.Random) -> None:
        plot = [self.left, self.upper, self.right, self.lower]
        if rng.random() < 0.15:
            self.pen.rectangle(plot, fill=shaded(self.ground, rng.choice((0.92, 1.1))))
        pale = tuple(round(0.75 * g + 0.25 * i) for g, i in zip(self.ground, self.ink, strict=True))
        lined, ticks = rng.choice(("no", "no", "full", "full", "dashed")), rng.random() < 0.7
        edge, thick = (self.right if self.on_right else self.left), rng.choice((1, 1, 2, 2, 3))
        away = 1 if self.on_right else -1
        for step in range(self.steps + 1):
            value = self.top * step // self.steps
            y = self.y(value)
            if lined == "full":
                self.pen.line([self.left, y, self.right, y], fill=pale)
            elif lined == "dashed":
                for x in range(self.left, self.right, 8):
                    self.pen.line([x, y, min(x + 4, self.right), y], fill=pale)
            if ticks:
                self.pen.line([edge + 3 * away, y, edge, y], fill=self.ink)
            anchor = "lm" if self.on_right else "rm"
            self.pen.text((edge + 5 * away, y), str(value), font=self.font, fill=self.ink, anchor=anchor)
        if rng.random() < 0.12:
            self.pen.rectangle(plot, outline=self.ink, width=1)
        if rng.random() < 0.85:
            self.pen.line([edge, self.upper, edge, self.lower], fill=self.ink, width=thick)
        self.pen.line([self.left, self.lower, self.right, self.lower], fill=self.ink, width=thick)

    def y(self, value: float) -> float:
        return self.lower - (self.lower - self.upper) * value / self.top

    def labels(self, rng: random.Random, count: int) -> list[str]:
        """Draw one label under each of `count` places."""
        room = (self.right - self.left) / count
        chosen = rng.choice(_LABELS)[:count]
        if max(self.pen.textlength(text, font=self.font) for text in chosen) > room - 2:
            chosen = _ANY_WIDTH[:count]
        for i, text in enumerate(chosen):
            place = (self.left + room * (i + 0.5), self.lower + 3)
            self.pen.text(place, text, font=self.font, fill=self.ink, anchor="ma")
        return list(chosen)

    def read(self, value: int) -> str:
        """Between which numbers of the scale, then the estimate."""
        step = self.top // self.steps
        below = value // step * step
        if value == below:
            return f"It is at {value} on the scale, so about {value}."
        return f"It is between {below} and {below + step}, about {value}."

    def colours(self, rng: random.Random, count: int) -> list[str]:
        return rng.sample([c for c in COLOURS if far(COLOURS[c], self.ground)], count)


def _values(rng: random.Random, count: int, top: int) -> list[int]:
    """Clearly different values, at least an eighth of the scale."""
    unit, gap = max(1, top // 50), max(1, top // 18)
    while True:
        values = [rng.randrange(top // 8 + 1, top + 1) // unit * unit for _ in range(count)]
        ordered = sorted(values)
        if ordered[0] > 0 and all(b - a >= gap for a, b in itertools.pairwise(ordered)):
            return values


def _plain_ask(rng: random.Random, kind: str, answer: str) -> Question:
    """A question that does not speak of colours."""
    while True:
        asked = ask(rng, kind, answer)
        if "colo" not in asked.text.lower():
            return asked


def _bar_questions(rng: random.Random, colours: list[str], labels: list[str], values: list[int]) -> list[Question]:
    """The largest and the smallest; bars of one colour are told apart by their labels."""
    plain = len(set(colours)) < len(colours)
    names = [f"bar at {x}" for x in labels] if plain else [f"{c} bar" for c in colours]
    tall, short = values.index(max(values)), values.index(min(values))
    how = _plain_ask if plain else ask
    return [
        how(rng, "largest", f"The {names[tall]} is the tallest."),
        how(rng, "smallest", f"The {names[short]} is the shortest."),
        ask(rng, "largest_at", f"The bar at {labels[tall]} is the tallest."),
        ask(rng, "smallest_at", f"The bar at {labels[short]} is the shortest."),
        ask(rng, "bars", f"There are {NUMBERS[len(values)]} bars."),
        ask(rng, "describe", f"This is a bar chart with {NUMBERS[len(values)]} bars."),
    ]


def bars(rng: random.Random, material: Material) -> Scene:
    frame = Frame(rng, material)
    count = rng.randint(2, 4 if frame.top < 10 else 6)
    one_colour = rng.random() < 0.12
    colours = frame.colours(rng, 1) * count if one_colour else frame.colours(rng, count)
    values, labels = _values(rng, count, frame.top), frame.labels(rng, count)
    room = (frame.right - frame.left) / count
    thick, written, edged = room * rng.uniform(0.4, 0.94), rng.random() < 0.2, rng.random() < 0.15
    for i, (colour, value) in enumerate(zip(colours, values, strict=True)):
        x = frame.left + room * (i + 0.5)
        box = [x - thick / 2, frame.y(value), x + thick / 2, frame.lower - 1]
        frame.pen.rectangle(box, fill=tone(rng, colour, frame.ground), outline=frame.ink if edged else None)
        if written:
            frame.pen.text((x, frame.y(value) - 1), str(value), font=frame.font, fill=frame.ink, anchor="md")
    questions = _bar_questions(rng, colours, labels, values)
    chosen = rng.sample(range(count), 2)
    if not one_colour:
        questions += [ask(rng, "value", frame.read(values[i]), c=colours[i]) for i in chosen]
    questions.append(ask(rng, "value_at", frame.read(values[chosen[0]]), x=labels[chosen[0]]))
    return Scene(frame.picture, questions, "a bar chart")


def lines(rng: random.Random, material: Material) -> Scene:
    frame, count = Frame(rng, material), rng.randint(3, 7)
    colour = frame.colours(rng, 1)[0]
    ink = tone(rng, colour, frame.ground)
    up, labels = rng.random() < 0.5, frame.labels(rng, count)
    ends = sorted((rng.uniform(0.08, 0.42), rng.uniform(0.62, 0.98)), reverse=not up)
    unit, loose = max(1, frame.top // 50), rng.choice((0.0, 0.04, 0.08))
    path = [ends[0] + (ends[1] - ends[0]) * i / (count - 1) + rng.uniform(-loose, loose) for i in range(count)]
    values = [max(1, round(min(1.0, max(0.06, p)) * frame.top / unit) * unit) for p in path]
    room = (frame.right - frame.left) / count
    points = [(frame.left + room * (i + 0.5), frame.y(v)) for i, v in enumerate(values)]
    if rng.random() < 0.08:
        pale = tuple(round(0.7 * g + 0.3 * c) for g, c in zip(frame.ground, ink, strict=True))
        frame.pen.polygon([*points, (points[-1][0], frame.lower - 2), (points[0][0], frame.lower - 2)], fill=pale)
    frame.pen.line(points, fill=ink, width=rng.randint(2, 5), joint="curve")
    mark, r = rng.choice(("", "", "round", "round", "square")), rng.randint(2, 5)
    for x, y in points:
        if mark == "round":
            frame.pen.ellipse([x - r, y - r, x + r, y + r], fill=ink)
        elif mark == "square":
            frame.pen.rectangle([x - r, y - r, x + r, y + r], fill=ink)
    way, one = "up" if up else "down", rng.randrange(count)
    questions = [
        ask(rng, "trend", f"The line goes {way}."),
        ask(rng, "trend", f"The line goes {way}."),
        ask(rng, "colour", f"The line is {colour}.", s="line"),
        ask(rng, "describe", f"This is a line chart. The {colour} line goes {way}."),
        ask(rng, "value_at", frame.read(values[one]), x=labels[one]),
    ]
    clear = max(1, frame.top // 25)
    ordered = sorted(values)
    if ordered[-1] - ordered[-2] >= clear:
        questions.append(ask(rng, "peak", f"The line is highest at {labels[values.index(ordered[-1])]}."))
    if ordered[1] - ordered[0] >= clear:
        questions.append(ask(rng, "low", f"The line is lowest at {labels[values.index(ordered[0])]}."))
    return Scene(frame.picture, questions, article(f"{colour} line chart"))


def chart(rng: random.Random, material: Material) -> Scene:
    return (bars if rng.random() < 0.65 else lines)(rng, material)
