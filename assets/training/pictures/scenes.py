"""Shapes on a plain background: one, several of a kind, or a mixture with relations."""

from __future__ import annotations

import random
from typing import NamedTuple

from PIL import Image, ImageDraw

from assets.training.phrases import NUMBERS, article, listing, plural
from assets.training.pictures.canvas import (
    COLOURS,
    SHAPES,
    ZONES,
    Question,
    Scene,
    ask,
    at_zone,
    background,
    canvas_size,
    draw_shape,
    jitter,
    place_answer,
    smooth,
)

# Centres of a zone as parts of the side; what lies between two ranges would be arguable.
_THIRDS = ((0.12, 0.28), (0.42, 0.58), (0.72, 0.88))
_OVERSIZE = 2


class Thing(NamedTuple):
    """A drawn shape: zone column and row, centre and radius in parts of the smaller side."""

    shape: str
    colour: str
    column: int
    row: int
    x: float
    y: float
    radius: float

    @property
    def zone(self) -> str:
        return ZONES[self.row][self.column]

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


def _paint(rng: random.Random, things: list[Thing], ground: tuple[int, int, int], size: tuple[int, int]) -> Image.Image:
    width, height = (n * _OVERSIZE for n in size)
    picture = Image.new("RGB", (width, height), ground)
    pen = ImageDraw.Draw(picture)
    for thing in things:
        radius = thing.radius * min(width, height)
        x = min(max(thing.x * width, radius * 1.12), width - radius * 1.12)
        y = min(max(thing.y * height, radius * 1.12), height - radius * 1.12)
        draw_shape(rng, pen, thing.shape, x, y, radius, jitter(rng, COLOURS[thing.colour]))
    return smooth(picture, _OVERSIZE)


def _put(rng: random.Random, shape: str, colour: str, cell: int, radius: float) -> Thing:
    column, row = cell % 3, cell // 3
    return Thing(shape, colour, column, row, rng.uniform(*_THIRDS[column]), rng.uniform(*_THIRDS[row]), radius)


def single(rng: random.Random) -> Scene:
    """One shape."""
    shape, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    ground_name, ground = background(rng, {colour})
    big = rng.random() < 0.5
    thing = _put(rng, shape, colour, rng.randrange(9), rng.uniform(0.2, 0.3) if big else rng.uniform(0.08, 0.14))
    other, tint = rng.choice(SHAPES), rng.choice(list(COLOURS))
    found = f"Yes, there is {article(shape)}." if other == shape else f"No, there is {article(shape)}, but no {other}."
    questions = [
        ask(rng, "colour", rng.choice((f"The {shape} is {colour}.", f"It is {colour}.")), s=shape),
        ask(rng, "shape", rng.choice((f"It is {article(shape)}.", f"This is {article(shape)}.")), c=colour),
        ask(rng, "position", place_answer(thing.zone), s=rng.choice((shape, "shape"))),
        ask(rng, "background", f"The background is {ground_name}."),
        ask(rng, "exists", found, s=article(other)),
        ask(rng, "is_colour", f"Yes, it is {colour}." if tint == colour else f"No, it is {colour}.", s=shape, c=tint),
        ask(rng, "describe", f"I see {article(thing.name)} on {article(ground_name)} background."),
        ask(rng, "count_all", "There is one shape."),
    ]
    return Scene(_paint(rng, [thing], ground, canvas_size(rng)), questions, article(thing.name))


def row_of_kind(rng: random.Random) -> Scene:
    """One to six of the same shape."""
    shape, count = rng.choice(SHAPES), rng.randint(1, 6)
    same = rng.random() < 0.6
    colour = rng.choice(list(COLOURS))
    ground_name, ground = background(rng, {colour} if same else set(COLOURS) - {"white", "black", "gray"})
    others = [c for c in COLOURS if c != ground_name]
    things = [
        _put(rng, shape, colour if same else rng.choice(others), cell, rng.uniform(0.07, 0.13))
        for cell in sorted(rng.sample(range(9), count))
    ]
    noun, be = (shape, "is") if count == 1 else (plural(shape), "are")
    answer = rng.choice((f"There {be} {NUMBERS[count]} {noun}.", f"I count {NUMBERS[count]} {noun}."))
    seen = f"{NUMBERS[count]} {colour + ' ' if same else ''}{noun}"
    questions = [
        ask(rng, "count", answer, p=plural(shape)),
        ask(rng, "count", answer, p=plural(shape)),
        ask(rng, "count_all", f"There {be} {NUMBERS[count]} shape{'s' if count > 1 else ''}."),
        ask(rng, "describe", f"I see {seen} on {article(ground_name)} background."),
        ask(rng, "shape", f"It is {article(shape)}." if count == 1 else f"They are {plural(shape)}."),
    ]
    if same:
        questions.append(ask(rng, "colour", f"{'It is' if count == 1 else 'They are'} {colour}.", s=noun))
    return Scene(_paint(rng, things, ground, canvas_size(rng)), questions, seen)


def mixture(rng: random.Random) -> Scene:
    """Two to six shapes of several kinds."""
    count = rng.randint(2, 6)
    ground_name, ground = background(rng, set(COLOURS) - {"white", "black", "gray"})
    colours = [c for c in COLOURS if c != ground_name]
    kinds = rng.sample(SHAPES, rng.randint(2, 4))
    things = [
        _put(rng, rng.choice(kinds), rng.choice(colours), cell, rng.choice((0.07, 0.13)) * rng.uniform(0.92, 1.08))
        for cell in sorted(rng.sample(range(9), count))
    ]
    names = [article(t.name) for t in things]
    questions = [
        ask(rng, "count_all", f"There are {NUMBERS[count]} shapes."),
        ask(rng, "describe", f"I see {listing(names)}."),
        *(_count_kind(rng, things, shape) for shape in rng.sample(kinds, 2)),
        *_about_single_ones(rng, things),
    ]
    missing = rng.choice(SHAPES)
    if all(t.shape != missing for t in things):
        questions.append(ask(rng, "exists", f"No, there is no {missing}.", s=article(missing)))
        questions.append(_count_kind(rng, things, missing))
    return Scene(_paint(rng, things, ground, canvas_size(rng)), questions, listing(names))


def _count_kind(rng: random.Random, things: list[Thing], shape: str) -> Question:
    """Named one by one first, so that the number follows from what was written."""
    own = [article(t.name) for t in things if t.shape == shape]
    if not own:
        return ask(rng, "count", f"There are no {plural(shape)}.", p=plural(shape))
    noun = shape if len(own) == 1 else plural(shape)
    return ask(rng, "count", f"I see {listing(own)}: {NUMBERS[len(own)]} {noun}.", p=plural(shape))


def _about_single_ones(rng: random.Random, things: list[Thing]) -> list[Question]:
    """Questions about shapes and colours that occur once, and relations between two of them."""
    shapes = [t for t in things if sum(o.shape == t.shape for o in things) == 1]
    tints = [t for t in things if sum(o.colour == t.colour for o in things) == 1]
    made: list[Question] = []
    if shapes:
        one = rng.choice(shapes)
        made.append(ask(rng, "colour", f"The {one.shape} is {one.colour}.", True, s=one.shape))
        made.append(ask(rng, "position", place_answer(one.zone), True, s=one.shape))
    if tints:
        one = rng.choice(tints)
        made.append(ask(rng, "shape", f"The {one.colour} shape is {article(one.shape)}.", True, c=one.colour))
        made.append(ask(rng, "position", place_answer(one.zone), True, s=f"{one.colour} {one.shape}"))
    for _ in range(3 if len(shapes) > 1 else 0):
        made += _relations(rng, *rng.sample(shapes, 2))
    return made


def relation_answer(a: Thing, b: Thing, relation: str) -> str | None:
    """Both places first, then what follows from them; None where it could be argued."""
    across, down = b.column - a.column, b.row - a.row
    holds = {"left of": across > 0, "right of": across < 0, "above": down > 0, "below": down < 0}
    if relation in holds:
        if (across if relation in ("left of", "right of") else down) == 0:
            return None
        places = f"The {a.shape} is {at_zone(a.zone)} and the {b.shape} is {at_zone(b.zone)}"
        return f"{places}, so {'yes' if holds[relation] else 'no'}."
    if max(a.radius, b.radius) < 1.4 * min(a.radius, b.radius):
        return None
    big, small = (a, b) if a.radius > b.radius else (b, a)
    right = (a is big) == (relation == "bigger than")
    return f"The {big.shape} is big and the {small.shape} is small, so {'yes' if right else 'no'}."


RELATIONS = ("left of", "right of", "above", "below", "bigger than", "smaller than")
# Other words for the same relation.
_SAID = {
    "left of": ("left of", "to the left of", "on the left of", "on the left side of"),
    "right of": ("right of", "to the right of", "on the right of", "on the right side of"),
    "above": ("above", "over", "higher than", "higher up than"),
    "below": ("below", "under", "lower than", "further down than", "underneath"),
    "bigger than": ("bigger than", "larger than"),
    "smaller than": ("smaller than", "littler than"),
}


def _relations(rng: random.Random, a: Thing, b: Thing) -> list[Question]:
    made = []
    relation = rng.choice(RELATIONS)
    answer = relation_answer(a, b, relation)
    if answer is not None:
        made.append(ask(rng, "relation", answer, a=a.shape, b=b.shape, r=rng.choice(_SAID[relation])))
    if relation_answer(a, b, "bigger than") is not None and rng.random() < 0.4:
        big = a if a.radius > b.radius else b
        made.append(ask(rng, "bigger", f"The {big.shape} is bigger.", a=a.shape, b=b.shape))
    if rng.random() < 0.4 and (a.column == b.column) != (a.row == b.row):
        side = (
            ("left of" if a.column < b.column else "right of")
            if a.row == b.row
            else ("above" if a.row < b.row else "below")
        )
        made.append(ask(rng, "which_side", f"The {a.shape} is {side} the {b.shape}.", a=a.shape, b=b.shape))
    return made
