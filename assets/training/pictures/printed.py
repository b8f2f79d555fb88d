"""Printed words, numbers and small sums. A word is spelled first and said afterwards: letters are what the model sees."""

from __future__ import annotations

import random

from PIL import Image, ImageDraw, ImageFont

from assets.training.material import Material, font_of
from assets.training.pictures.canvas import (
    COLOURS,
    Colour,
    Scene,
    ask,
    background,
    canvas_size,
    ground_picture,
    jitter,
    tone,
)

_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
_PATTERNS = ("cvc", "cvcv", "cvvc", "vcv", "vcvc", "ccvc", "cvcc", "cvccv", "vccv", "cv", "vc")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _made_up(rng: random.Random) -> str:
    """A string of 3 to 8 letters that looks like a word; every consonant is as frequent as any other."""
    size, made = rng.randint(3, 8), ""
    while len(made) < size:
        made += "".join(rng.choice(_VOWELS if p == "v" else _CONSONANTS) for p in rng.choice(_PATTERNS))
    return made[:size]


def _content(rng: random.Random, material: Material) -> tuple[str, str]:
    """(kind, text). Made-up words keep the model from guessing the word instead of reading it."""
    draw = rng.random()
    if draw < 0.2:
        return "word", rng.choice(material.words)
    if draw < 0.66:
        drawn = rng.random() < 0.75
        text = _made_up(rng) if drawn else "".join(rng.choice(_LETTERS) for _ in range(rng.randint(1, 8)))
        return "word", text if text not in material.held_words else "".join(reversed(text)) + "q"
    if draw < 0.92:
        return "number", str(rng.randint(0, 10 ** rng.randint(1, 4) - 1))
    a, b = sorted((rng.randint(0, 10), rng.randint(0, 10)))
    return "sum", f"{b}{rng.choice('+-')}{a}"


def _ink(rng: random.Random, ground: Colour) -> tuple[str, Colour]:
    """A colour that can be told from the background by its lightness."""
    names = [n for n, c in COLOURS.items() if abs(sum(c) - sum(ground)) > 240] or ["black"]
    for _ in range(6):
        name = rng.choice(names)
        colour = tone(rng, name) if rng.random() < 0.5 else jitter(rng, COLOURS[name], 10)
        if abs(sum(colour) - sum(ground)) > 200:
            return name, colour
    return ("white", (250, 250, 250)) if sum(ground) < 380 else ("black", (10, 10, 10))


def _mask(
    rng: random.Random, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, turn: float
) -> Image.Image:
    """The text alone, white on black and cut to its size: set wide or tight, bold, slanted, turned."""
    pen = ImageDraw.Draw(Image.new("L", (1, 1)))
    pen.fontmode = rng.choice(("L", "L", "L", "1"))
    bold = 1 if rng.random() < 0.1 else 0
    apart = rng.uniform(0.02, 0.3) if rng.random() < 0.2 and len(text) > 1 else 0.0
    left, top, right, bottom = (round(n) for n in pen.textbbox((0, 0), text, font=font, stroke_width=bold))
    gap = max(1, round(apart * (bottom - top))) if apart else 0
    mask = Image.new("L", (right - left + gap * (len(text) - 1) + 6, bottom - top + 6))
    ink = ImageDraw.Draw(mask)
    ink.fontmode = pen.fontmode
    if gap:
        at = 3.0 - left
        for letter in text:
            ink.text((at, 3 - top), letter, font=font, fill=255, stroke_width=bold)
            at += pen.textlength(letter, font=font) + gap
    else:
        ink.text((3 - left, 3 - top), text, font=font, fill=255, stroke_width=bold)
    if rng.random() < 0.12:
        slant = rng.uniform(-0.2, 0.25)
        wide = mask.width + round(abs(slant) * mask.height)
        shift = -slant * mask.height if slant > 0 else 0.0
        mask = mask.transform(
            (wide, mask.height), Image.Transform.AFFINE, (1, slant, shift, 0, 1, 0), Image.Resampling.BILINEAR
        )
    if turn:
        mask = mask.rotate(turn, Image.Resampling.BILINEAR, expand=True)
    return mask.crop(mask.getbbox() or (0, 0, 1, 1))


def draw_text(
    rng: random.Random, text: str, font_path: str, size: tuple[int, int], ground: Colour, ink: Colour, turn: float
) -> Image.Image:
    """The text somewhere on the canvas, as large as chance and room allow; the canvas grows where it must."""
    width, height = size
    letters = max(14, round(height * rng.uniform(0.25, 0.8)))
    pen = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    while letters > 12 and pen.textlength(text, font=font_of(font_path, letters)) > width - 8:
        letters = max(12, int(letters * 0.85))
    mask = _mask(rng, text, font_of(font_path, letters), turn)
    width, height = max(width, mask.width + 6), max(height, mask.height + 6)
    picture = ground_picture(rng, (width, height), ground)
    x, y = rng.randint(2, width - mask.width - 2), rng.randint(2, height - mask.height - 2)
    if rng.random() < 0.05:
        ImageDraw.Draw(picture).rectangle([x - 2, y - 2, x + mask.width + 2, y + mask.height + 2], outline=ink)
    picture.paste(ink, (x, y), mask)
    return picture


def spelled(text: str) -> str:
    return f'I read {"-".join(text)}, so it says "{text}".'


def printed(rng: random.Random, material: Material) -> Scene:
    kind, text = _content(rng, material)
    shown = rng.choice((text, text, text.upper(), text.upper(), text.capitalize())) if kind == "word" else text
    width, height = canvas_size(rng)
    size = max(width, 22 + 13 * len(text)), max(height, 44)
    ground_name, ground = background(rng, set())
    ink_name, ink = _ink(rng, ground)
    turn = rng.uniform(-9, 9) if rng.random() < 0.3 else 0.0
    picture = draw_text(rng, shown, rng.choice(material.fonts), size, ground, ink, turn)
    spaced = text.replace("+", " + ").replace("-", " - ")
    if kind == "word":
        questions = [ask(rng, "word", spelled(text)) for _ in range(2)]
    elif kind == "number":
        answer = rng.choice((f"I read {' '.join(text)}: {text}.", f"The digits are {' '.join(text)}: {text}."))
        questions = [ask(rng, "number", answer) for _ in range(2)]
    else:
        a, b = (int(n) for n in text.replace("+", "-").split("-"))
        questions = [
            ask(rng, "sum", f"{spaced} = {a + b if '+' in text else a - b}."),
            ask(rng, "word", f"It says {spaced}."),
        ]
    questions.append(ask(rng, "text_colour", f"The text is {ink_name}."))
    questions.append(ask(rng, "background", f"The background is {ground_name}."))
    return Scene(picture, questions, f'the {kind} "{text}"')
