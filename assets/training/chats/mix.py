"""Text conversations for training: teacher chats, templates, and long ones with facts to remember."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from assets.training.chats.recall import facts, telling, untold
from assets.training.chats.templates import template_turn
from assets.training.documents import Document, Turn
from assets.training.material import Material

Chat = list[str]  # question, answer, question, answer, ...
_SYSTEM = (
    "You are a helpful assistant.", "Answer in one sentence.", "Be friendly.", "You are a small helpful model. Keep it short.",
)  # fmt: skip


def read_lines(path: Path) -> list[bytes]:
    """Chats of the sampler or the filter (one JSON list per line, xz or gzip) or of an older single JSON file (.json.xz),
    each as JSON."""
    unpack = lzma.open if path.suffix == ".xz" else gzip.open
    with unpack(path, "rb") as file:
        if path.name.endswith(".json.xz"):
            return [json.dumps([text for pair in chat for text in pair]).encode() for chat in json.load(file)]
        return file.read().splitlines()


def read_chats(path: Path) -> list[Chat]:
    return [json.loads(line) for line in read_lines(path)]


def chat_document(chat: Chat) -> Document:
    return Document(tuple(Turn(q, a) for q, a in zip(chat[0::2], chat[1::2], strict=True)))


@dataclass(frozen=True)
class Remembering(Document):
    """A conversation in which facts about the user count: inside of another one they would contradict its own."""


def template_document(rng: random.Random, material: Material) -> Document:
    """One to four single questions; in a third of them something has to be remembered, or was never told."""
    turns = [template_turn(rng, material) for _ in range(rng.choices((1, 2, 3, 4), (30, 30, 25, 15))[0])]
    system, draw = rng.choice(_SYSTEM) if rng.random() < 0.08 else "", rng.random()
    if draw < 0.05:
        turns.insert(rng.randint(0, len(turns)), untold(rng))
    elif draw < 0.33:
        kept = facts(rng, rng.choices((1, 2, 3), (50, 35, 15))[0])
        asked = [f.asked for f in kept]
        rng.shuffle(asked)
        turns = [*telling(rng, kept), *turns[: rng.randint(0, len(turns))], *asked]
        if rng.random() < 0.1:
            turns.append(untold(rng, frozenset(f.kind for f in kept)))
    return (Remembering if draw < 0.33 else Document)(tuple(turns), system)


def long_document(
    rng: random.Random, other: Callable[[], Document], tokens: Callable[[Document], int], most: int
) -> Document:
    """Facts, each at a distance of its own from the end, other conversations in between, and the questions at the end.

    `other` makes what lies between; `tokens` counts; the whole stays below `most` tokens. Distances are drawn evenly.
    """
    groups = [[f] for f in facts(rng, rng.randint(1, 4))]
    if len(groups) > 2 and rng.random() < 0.3:
        groups = [groups[0] + groups[1], *groups[2:]]  # two in one breath
    told = [telling(rng, group) for group in groups]
    questions = [f.asked for group in groups for f in group]
    rng.shuffle(questions)
    room = most - tokens(Document((*(t for turns in told for t in turns), *questions)))
    distances = [rng.uniform(0, max(0, room)) for _ in told]
    between: list[tuple[float, tuple[Turn, ...]]] = []  # (tokens from its middle to the end, turns), last ones first
    used = 0
    while used < max(distances):
        document = other()
        if isinstance(document, Remembering):
            continue
        count = tokens(document)
        if used + count > room:
            break
        used += count
        between.append((used - count / 2, document.turns))
    turns: list[Turn] = []
    waiting = sorted(zip(distances, told, strict=True), key=lambda pair: pair[0])
    for middle, some in [*reversed(between), (0.0, ())]:
        while waiting and waiting[-1][0] >= middle:
            turns += waiting.pop()[1]
        turns += some
    return Document((*turns, *questions))
