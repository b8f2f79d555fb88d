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
    ground_picture,
    place_answer,
    smooth,
    tone,
)

# Centres of a zone as parts of the side; what lies between two ranges would be arguable.
_THIRDS = ((0.12, 0.28), (0.42, 0.58), (0.72, 0.88))
_LEAST = 6  # pixels of radius: below, a hexagon and a circle look the same


class Thing(NamedTuple):
    """A drawn shape: zone column and row, centre in pixels once it is placed, radius in parts of the smaller side."""

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


def _apart(rng: random.Random, things: list[Thing], size: tuple[int, int]) -> list[Thing]:
    """Moved inside their zones until they do not touch; where that does not help, all become smaller."""
    short = min(size)

    def place(thing: Thing) -> tuple[float, float]:
        edge = thing.radius * short * 1.15
        x, y = (rng.uniform(*_THIRDS[n]) for n in (thing.column, thing.row))
        return min(max(x * size[0], edge), size[0] - edge), min(max(y * size[1], edge), size[1] - edge)

    for attempt in range(40):
        if attempt % 8 == 7:
            things = [t._replace(radius=t.radius * 0.9) for t in things]
        made: list[Thing] = []
        for thing in things:
            for _ in range(6):
                x, y = place(thing)
                if all((x - o.x) ** 2 + (y - o.y) ** 2 > (1.2 * short * (thing.radius + o.radius)) ** 2 for o in made):
                    made.append(thing._replace(x=x, y=y))
                    break
        if len(made) == len(things):
            return made
    return [t._replace(x=place(t)[0], y=place(t)[1]) for t in things]


def _paint(rng: random.Random, things: list[Thing], ground: tuple[int, int, int], size: tuple[int, int]) -> Image.Image:
    """Drawn larger and shrunk, or with hard edges. Small shapes need a larger canvas."""
    grow = max(1.0, _LEAST / (min(t.radius for t in things) * min(size)))
    size = min(400, round(size[0] * grow)), min(400, round(size[1] * grow))
    things = _apart(rng, things, size)
    factor = rng.choice((1, 2, 2, 3)) if max(size) < 200 else rng.choice((1, 2, 2))
    picture = ground_picture(rng, (size[0] * factor, size[1] * factor), ground)
    pen, short = ImageDraw.Draw(picture), min(size) * factor
    for thing in things:
        ink = tone(rng, thing.colour, ground)
        draw_shape(rng, pen, thing.shape, thing.x * factor, thing.y * factor, thing.radius * short, ink, ground)
    return smooth(picture, factor)


def _put(shape: str, colour: str, cell: int, radius: float) -> Thing:
    column, row = cell % 3, cell // 3
    return Thing(shape, colour, column, row, 0.0, 0.0, radius)


def single(rng: random.Random) -> Scene:
    """One shape."""
    shape, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    ground_name, ground = background(rng, {colour})
    cell = rng.randrange(9)
    size = rng.choice(((0.08, 0.14), (0.14, 0.2), (0.2, 0.26), (0.26, 0.4) if cell == 4 else (0.1, 0.2)))
    thing = _put(shape, colour, cell, rng.uniform(*size))
    other = shape if rng.random() < 0.4 else rng.choice(SHAPES)
    tint = colour if rng.random() < 0.4 else rng.choice(list(COLOURS))
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
        _put(shape, colour if same else rng.choice(others), cell, rng.uniform(0.07, 0.13))
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
        if count == 1:
            questions.append(ask(rng, "colour", f"It is {colour}.", s=noun))
        else:
            questions.append(ask(rng, "colour_all", f"They are {colour}.", p=noun))
    return Scene(_paint(rng, things, ground, canvas_size(rng)), questions, seen)


def mixture(rng: random.Random) -> Scene:
    """Two to six shapes of several kinds."""
    count = rng.randint(2, 6)
    ground_name, ground = background(rng, set(COLOURS) - {"white", "black", "gray"})
    colours = [c for c in COLOURS if c != ground_name]
    kinds = rng.sample(SHAPES, rng.randint(2, 4))
    things = [
        _put(rng.choice(kinds), rng.choice(colours), cell, rng.choice((0.075, 0.14)) * rng.uniform(0.85, 1.08))
        for cell in sorted(rng.sample(range(9), count))
    ]
    names = [article(t.name) for t in things]
    questions = [
        ask(rng, "count_all", f"There are {NUMBERS[count]} shapes."),
        ask(rng, "describe", f"I see {listing(names)}."),
        *(_count_kind(rng, things, shape) for shape in rng.sample(kinds, 2)),
        *_about_single_ones(rng, things),
    ]
    there, tint = rng.choice(things), rng.choice(colours)
    if rng.random() < 0.5:
        found, of = (article(there.name),) * 2 if rng.random() < 0.5 else (article(there.shape), article(there.name))
        questions.append(ask(rng, "exists", f"Yes, there is {of}.", s=found))
    elif all((t.shape, t.colour) != (there.shape, tint) for t in things):
        questions.append(
            ask(rng, "exists", f"No, there is no {tint} {there.shape}.", s=article(f"{tint} {there.shape}"))
        )
    corner = [t for t in things if t.column != 1 and t.row != 1]
    if corner:
        one = rng.choice(corner)
        questions.append(
            ask(rng, "at_place", f"There is {article(one.name)} {at_zone(one.zone)}.", x=at_zone(one.zone))
        )
    own = [t for t in things if t.colour == there.colour]
    noun = f"{there.colour} shape{'s' if len(own) > 1 else ''}"
    answer = f"I see {listing([article(t.name) for t in own])}: {NUMBERS[len(own)]} {noun}."
    questions.append(ask(rng, "count", answer, p=f"{there.colour} {rng.choice(('shapes', 'things', 'objects'))}"))
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


def _called(rng: random.Random, one: Thing, things: list[Thing]) -> str | None:
    """A name that only this shape has: its kind, its colour, or both."""
    names = []
    if sum(o.shape == one.shape for o in things) == 1:
        names += [one.shape] * 3
    if sum(o.name == one.name for o in things) == 1:
        names.append(one.name)
    if sum(o.colour == one.colour for o in things) == 1:
        names.append(f"{one.colour} {rng.choice(('one', 'shape', 'thing'))}")
    return rng.choice(names) if names else None


def _about_single_ones(rng: random.Random, things: list[Thing]) -> list[Question]:
    """Questions about shapes and colours that occur once, and relations between two of them."""
    shapes = [t for t in things if sum(o.shape == t.shape for o in things) == 1]
    tints = [t for t in things if sum(o.colour == t.colour for o in things) == 1]
    made: list[Question] = []
    if shapes:
        one = rng.choice(shapes)
        made.append(ask(rng, "colour", f"The {one.shape} is {one.colour}.", True, s=one.shape))
        tint = one.colour if rng.random() < 0.5 else rng.choice(list(COLOURS))
        verdict = f"Yes, it is {tint}." if tint == one.colour else f"No, it is {one.colour}."
        made.append(ask(rng, "is_colour", verdict, True, s=one.shape, c=tint))
    if tints:
        one = rng.choice(tints)
        made.append(ask(rng, "shape", f"The {one.colour} shape is {article(one.shape)}.", True, c=one.colour))
    for one in rng.sample(things, 2):
        name = _called(rng, one, things)
        if name:
            made.append(ask(rng, "position", place_answer(one.zone), True, s=name))
    for _ in range(3):
        a, b = rng.sample(things, 2)
        names = _called(rng, a, things), _called(rng, b, things)
        if names[0] and names[1]:
            made += _relations(rng, a, b, names[0], names[1])
    return made


def relation_answer(a: Thing, b: Thing, relation: str, said: tuple[str, str] | None = None) -> str | None:
    """Both places first, then what follows from them; None where it could be argued. `said`: what the two are called."""
    first, second = said or (a.shape, b.shape)
    across, down = b.column - a.column, b.row - a.row
    holds = {"left of": across > 0, "right of": across < 0, "above": down > 0, "below": down < 0}
    if relation in holds:
        if (across if relation in ("left of", "right of") else down) == 0:
            return None
        places = f"The {first} is {at_zone(a.zone)} and the {second} is {at_zone(b.zone)}"
        return f"{places}, so {'yes' if holds[relation] else 'no'}."
    if max(a.radius, b.radius) < 1.4 * min(a.radius, b.radius):
        return None
    big, small = (first, second) if a.radius > b.radius else (second, first)
    right = (big == first) == (relation == "bigger than")
    return f"The {big} is big and the {small} is small, so {'yes' if right else 'no'}."


RELATIONS = ("left of", "right of", "above", "below", "bigger than", "smaller than")
# Other words for the same relation.
_SAID = {
    "left of": (
        "left of", "to the left of", "on the left of", "on the left side of", "more to the left than", "left from",
        "further to the left than", "at the left of",
    ),
    "right of": (
        "right of", "to the right of", "on the right of", "on the right side of", "more to the right than", "right from",
        "further to the right than", "at the right of",
    ),
    "above": ("above", "over", "higher than", "further up than", "somewhere above", "on top of", "upwards of"),
    "below": (
        "below", "under", "lower than", "further down than", "underneath", "somewhere below", "down from", "deeper than",
    ),
    "bigger than": ("bigger than", "larger than", "greater than", "greater in size than"),
    "smaller than": ("smaller than", "littler than", "less big than", "tinier than"),
}  # fmt: skip


# Comparisons of two, and the relation they ask for.
_FURTHER = {
    "left of": ("further left", "more to the left", "closer to the left edge"),
    "right of": ("further right", "more to the right", "closer to the right edge"),
    "above": ("higher up", "higher", "closer to the top"),
    "below": ("lower", "further down", "closer to the bottom"),
}


def _relations(rng: random.Random, a: Thing, b: Thing, first: str, second: str) -> list[Question]:
    """`first` and `second`: what the two are called."""
    made, said = [], (first, second)
    relation = rng.choice(RELATIONS)
    answer = relation_answer(a, b, relation, said)
    if answer is not None:
        kind = "size" if relation.endswith("than") else "relation"
        made.append(ask(rng, kind, answer, a=first, b=second, r=rng.choice(_SAID[relation])))
        if kind == "relation" and rng.random() < 0.15:
            places, _, verdict = answer.rpartition(", so ")
            winner = first if verdict == "yes." else second
            made.append(
                ask(rng, "further", f"{places}, so the {winner}.", a=first, b=second, x=rng.choice(_FURTHER[relation]))
            )
    if relation_answer(a, b, "bigger than") is not None and rng.random() < 0.4:
        big = first if a.radius > b.radius else second
        made.append(ask(rng, "bigger", f"The {big} is bigger.", a=first, b=second))
    if rng.random() < 0.4 and (a.column == b.column) != (a.row == b.row):
        side = (
            ("left of" if a.column < b.column else "right of")
            if a.row == b.row
            else ("above" if a.row < b.row else "below")
        )
        made.append(ask(rng, "which_side", f"The {first} is {side} the {second}.", a=first, b=second))
    return made
