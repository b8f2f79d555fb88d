"""Text conversations for training: teacher chats, templates, and long ones with facts to remember."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

from assets.training.chats.recall import facts
from assets.training.chats.templates import template_turn
from assets.training.documents import Document, Turn
from assets.training.material import Material

Chat = list[str]  # question, answer, question, answer, ...
_SYSTEM = (
    "You are a helpful assistant.", "Answer in one sentence.", "Be friendly.", "You are a small helpful model. Keep it short.",
)  # fmt: skip


def read_chats(path: Path) -> list[Chat]:
    """Chats of the sampler or the filter (one JSON list per line, xz or gzip) or of an older single JSON file (.json.xz)."""
    unpack = lzma.open if path.suffix == ".xz" else gzip.open
    with unpack(path, "rt", encoding="utf-8") as file:
        if path.name.endswith(".json.xz"):
            return [[text for pair in chat for text in pair] for chat in json.load(file)]
        return [json.loads(line) for line in file]


def chat_document(chat: Chat) -> Document:
    return Document(tuple(Turn(q, a) for q, a in zip(chat[0::2], chat[1::2], strict=True)))


def template_document(rng: random.Random, material: Material) -> Document:
    """One to four single questions; in a quarter of them something has to be remembered."""
    turns = [template_turn(rng, material) for _ in range(rng.choices((1, 2, 3, 4), (30, 30, 25, 15))[0])]
    if rng.random() < 0.25:
        kept = facts(rng, rng.randint(1, 2))
        turns = [*(f.told for f in kept), *turns, *(f.asked for f in kept)]
    return Document(tuple(turns), rng.choice(_SYSTEM) if rng.random() < 0.08 else "")


def long_document(
    rng: random.Random, other: Callable[[], Document], tokens: Callable[[Document], int], most: int
) -> Document:
    """Facts at the start and in the middle, other conversations in between, and the questions later on.

    `other` makes what lies between; `tokens` counts; the whole stays below `most` tokens.
    """
    kept = facts(rng, rng.randint(1, 4))
    early, late = kept[: len(kept) // 2 + 1], kept[len(kept) // 2 + 1 :]
    turns = [f.told for f in early]
    questions = [f.asked for f in kept]
    used = tokens(Document((*turns, *questions, *(f.told for f in late))))
    goal = rng.uniform(0.3, 1.0) * most
    told_late = False
    while True:
        document = other()
        count = tokens(document)
        if used + count > goal:
            break
        used += count
        turns += document.turns
        if late and not told_late and used > goal / 2:
            turns += [f.told for f in late]
            told_late = True
    if not told_late:
        turns += [f.told for f in late]
    rng.shuffle(questions)
    return Document((*turns, *questions))
