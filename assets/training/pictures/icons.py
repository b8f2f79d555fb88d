"""Everyday things as icons in several drawing styles."""

from __future__ import annotations

import random

from PIL import Image, ImageEnhance

from assets.training.material import Icons, Material, icon_image
from assets.training.pictures.canvas import Question, Scene, ask, background, canvas_size, ground_picture, shaded, tone
from assets.training.pictures.names import THINGS, is_same
from assets.training.pictures.names import said as called

_BLACK_STYLES = ("monotone", "contrast")  # black drawings: invisible on dark ground
_DARK = {"black", "brown", "blue", "purple", "gray", "red", "green"}
_INKS = ("red", "blue", "green", "purple", "brown", "black")
# What other things may also be called: "no" would be arguable.
_WIDE = frozenset(("bird", "fish", "flower", "tree", "car", "boat", "ship", "house", "computer", "hat", "shoe", "fly"))
# Words whose first meaning in WordNet is not the thing on the picture.
_OTHER_SENSE = frozenset((
    "bank", "baseball", "battery", "chain", "chicken", "church", "coconut", "compass", "crown", "diamond", "drop", "eyes", "ghost",
    "globe", "hammer", "heart", "peacock", "plug", "receipt", "ring", "ruler", "salt", "scale", "seal", "shell", "television",
    "toilet", "wave", "castle", "radio", "circus", "gift", "package",
))  # fmt: skip
_SIDES = (("on the left", "on the right"), ("at the top", "at the bottom"))


def _inked(rng: random.Random, image: Image.Image, black: bool) -> Image.Image:
    """Other colours of the same drawing: a form is the same in any ink."""
    hidden = image.getchannel("A")
    if black:
        flat = Image.new("RGB", image.size, shaded(tone(rng, rng.choice(_INKS)), 0.8))
        flat.putalpha(hidden)
        return flat
    draw, plain = rng.random(), image.convert("RGB")
    if draw < 0.35:
        shift, (hue, full, light) = rng.randrange(256), plain.convert("HSV").split()
        plain = Image.merge("HSV", (hue.point(lambda v: (v + shift) % 256), full, light)).convert("RGB")
    elif draw < 0.7:
        plain = ImageEnhance.Color(plain).enhance(rng.uniform(0.4, 1.7))
        plain = ImageEnhance.Brightness(plain).enhance(rng.uniform(0.75, 1.2))
    else:
        plain = ImageEnhance.Contrast(plain).enhance(rng.uniform(0.6, 1.5))
    plain.putalpha(hidden)
    return plain


def _drawn(rng: random.Random, icons: Icons, name: int, style: int, side: int) -> Image.Image:
    """One icon with the changes that keep its name: turned a little, mirrored, squeezed, in other colours."""
    image, black = icon_image(icons, name, style), icons.styles[style] in _BLACK_STYLES
    if rng.random() < 0.3:
        image = _inked(rng, image, black)
    if rng.random() < 0.4:
        image = image.rotate(rng.uniform(-18, 18), Image.Resampling.BICUBIC)
    if rng.random() < 0.3:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    wide = rng.uniform(0.88, 1.14) if rng.random() < 0.4 else 1.0
    image = image.resize((max(8, round(side * wide)), max(8, side)), Image.Resampling.BILINEAR)
    if rng.random() < 0.12:  # without colour the form must do
        grey = image.convert("LA").convert("RGBA")
        image = Image.blend(image, grey, rng.uniform(0.4, 1.0))
    return image


def choose(rng: random.Random, icons: Icons) -> tuple[int, int, str]:
    """(row, style, name to say) of an icon that is there; a name with more icons comes up more often."""
    row = rng.randrange(len(icons.names))
    styles = [s for s in range(len(icons.styles)) if icons.have[row, s]]
    return row, rng.choice(styles), icons.names[row]


def one_icon(rng: random.Random, icons: Icons, material: Material) -> Scene:
    row, style, name = choose(rng, icons)
    width, height = canvas_size(rng)
    width, height = max(width, 56), max(height, 56)
    _, ground = background(rng, _DARK if icons.styles[style] in _BLACK_STYLES else set())
    picture = ground_picture(rng, (width, height), ground)
    side = round(min(width, height) * rng.uniform(0.55, 0.95))
    image = _drawn(rng, icons, row, style, side)
    room = (max(0, width - image.width), max(0, height - image.height))
    picture.paste(image, (rng.randint(0, room[0]), rng.randint(0, room[1])), image)
    other = rng.choice(icons.names)
    same = other == name or other in _WIDE or is_same(name, other)
    said = called(name)
    questions = [
        *(
            ask(rng, "thing", rng.choice((f"I see {said}.", f"This is {said}.", f"It looks like {said}.")))
            for _ in range(3)
        ),
        ask(rng, "is_thing", f"Yes, it is {said}.", s=called(rng.choice(THINGS.get(name, (name,))))),
    ]
    if not same:
        questions.append(ask(rng, "is_thing", f"No, it is {said}.", s=called(other)))
    if name in material.glosses and name not in _OTHER_SENSE:
        questions.append(ask(rng, "meaning", f"{said.capitalize()} is {material.glosses[name]}."))
    return Scene(picture, questions, said)


def two_icons(rng: random.Random, icons: Icons) -> Scene:
    """Side by side or one above the other."""
    beside = rng.random() < 0.5
    long, short = rng.randint(120, 300), rng.randint(64, 150)
    size = (long, short) if beside else (short, long)
    _, ground = background(rng, _DARK)
    picture = ground_picture(rng, size, ground)
    made: list[Question] = []
    names = []
    for half, place in enumerate(_SIDES[0 if beside else 1]):
        row, style, name = choose(rng, icons)
        image = _drawn(rng, icons, row, style, round(min(long / 2, short) * rng.uniform(0.6, 0.9)))
        middle = long * (half + 0.5) / 2
        centre = (middle, short / 2) if beside else (short / 2, middle)
        picture.paste(image, (round(centre[0] - image.width / 2), round(centre[1] - image.height / 2)), image)
        names.append(called(name))
        made.append(ask(rng, "at_place", f"There is {names[-1]} {place}.", x=place))
        if not half or names[0] != names[1]:
            made.append(ask(rng, "position", f"It is {place}.", True, s=name))
    if names[0] == names[1]:
        made = [q for q in made if q.kind != "position"]
    shown = f"{names[0]} and {names[1]}"
    made += [ask(rng, "describe", f"I see {shown}."), ask(rng, "thing", f"I see {shown}.")]
    return Scene(picture, made, shown)


def icon(rng: random.Random, material: Material) -> Scene:
    assert material.icons is not None
    return one_icon(rng, material.icons, material) if rng.random() < 0.8 else two_icons(rng, material.icons)
