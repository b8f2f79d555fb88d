"""Printed words, numbers and small sums. A word is spelled first and said afterwards: letters are what the model sees."""

from __future__ import annotations

import random

from PIL import Image, ImageDraw

from assets.training.material import Material, font_of
from assets.training.pictures.canvas import COLOURS, Colour, Scene, ask, background, canvas_size, jitter

_LETTERS = "aabcdeefghiijklmnooprsttuuvwxyz"


def _content(rng: random.Random, material: Material) -> tuple[str, str]:
    """(kind, text). Letters at random keep the model from guessing the word instead of reading it."""
    draw = rng.random()
    if draw < 0.38:
        return "word", rng.choice(material.words)
    if draw < 0.62:
        return "word", "".join(rng.choice(_LETTERS) for _ in range(rng.randint(2, 8)))
    if draw < 0.9:
        return "number", str(rng.randint(0, 10 ** rng.randint(1, 4) - 1))
    a, b = sorted((rng.randint(0, 10), rng.randint(0, 10)))
    return "sum", f"{b}{rng.choice('+-')}{a}"


def _ink(rng: random.Random, ground: Colour) -> str:
    """A colour that can be told from the background."""
    able = [n for n, c in COLOURS.items() if abs(sum(c) - sum(ground)) > 240]
    return rng.choice(able or ["black"])


def draw_text(
    rng: random.Random, text: str, font_path: str, size: tuple[int, int], ground: Colour, ink: Colour, turn: float
) -> Image.Image:
    """The text somewhere on the canvas, as large as chance and room allow."""
    width, height = size
    letters = max(14, round(height * rng.uniform(0.3, 0.75)))
    pen = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    while True:
        font = font_of(font_path, letters)
        left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
        if (right - left <= width - 8 and bottom - top <= height - 6) or letters <= 11:
            break
        letters = max(11, int(letters * 0.85))
    picture = Image.new("RGB", size, ground)
    x = rng.randint(4, max(5, width - 4 - round(right - left))) - left
    y = rng.randint(3, max(4, height - 3 - round(bottom - top))) - top
    ImageDraw.Draw(picture).text((x, y), text, font=font, fill=ink)
    return picture.rotate(turn, Image.Resampling.BILINEAR, fillcolor=ground) if turn else picture


def spelled(text: str) -> str:
    return f'I read {"-".join(text)}, so it says "{text}".'


def printed(rng: random.Random, material: Material) -> Scene:
    kind, text = _content(rng, material)
    shown = rng.choice((text, text.upper(), text.capitalize())) if kind == "word" else text
    width, height = canvas_size(rng)
    size = max(width, 22 + 13 * len(text)), max(height, 56)
    ground_name, ground = background(rng, set())
    ink = _ink(rng, ground)
    turn = rng.uniform(-7, 7) if rng.random() < 0.3 else 0.0
    picture = draw_text(rng, shown, rng.choice(material.fonts), size, ground, jitter(rng, COLOURS[ink], 10), turn)
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
    questions.append(ask(rng, "text_colour", f"The text is {ink}."))
    questions.append(ask(rng, "background", f"The background is {ground_name}."))
    return Scene(picture, questions, f'the {kind} "{text}"')
