"""Pictures that show nothing, and questions no picture answers."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image

from assets.training.pictures.canvas import COLOURS, Question, Scene, ask, canvas_size, jitter

CANNOT_TELL = (
    "I can't tell that from the picture.", "I don't know. The picture does not show that.",
    "I can't see that in the picture.", "The picture does not say that, so I can't tell.",
)  # fmt: skip


def unanswerable(rng: random.Random) -> Question:
    return ask(rng, "unknown", rng.choice(CANNOT_TELL))


def blank(rng: random.Random) -> Scene:
    width, height = canvas_size(rng)
    noise = np.random.default_rng(rng.getrandbits(32))
    kind = rng.choice(("noise", "plain", "blur", "blocks"))
    if kind == "noise":
        picture = Image.fromarray(noise.integers(0, 256, (height, width, 3), np.uint8), "RGB")
        answer = "I can't tell. It looks like random noise."
    elif kind == "plain":
        name = rng.choice(list(COLOURS))
        picture = Image.new("RGB", (width, height), jitter(rng, COLOURS[name], 6))
        answer = f"I can't tell, the picture is empty. It is just {name}."
    else:
        side = 5 if kind == "blur" else 10
        small = Image.fromarray(noise.integers(0, 256, (side, side, 3), np.uint8), "RGB")
        how = Image.Resampling.BICUBIC if kind == "blur" else Image.Resampling.NEAREST
        picture = small.resize((width, height), how)
        answer = f"I can't tell. I only see {'blurry colors' if kind == 'blur' else 'colored blocks'}."
    nothing = "I can't tell. There is nothing to read."
    questions = [
        ask(rng, "describe", answer),
        ask(rng, "thing", answer),
        ask(rng, "thing", answer),
        ask(rng, rng.choice(("word", "number")), nothing),
    ]
    return Scene(picture, questions, "nothing that I can name")
