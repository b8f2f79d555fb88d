"""Facts told at the start of a conversation and asked for at its end."""

from __future__ import annotations

import random
from typing import NamedTuple

from assets.training.chats.facts import ANIMALS, CITIES, FOODS, JOBS, NAMES
from assets.training.documents import Turn
from assets.training.phrases import article, vary
from assets.training.pictures.canvas import COLOURS


class Fact(NamedTuple):
    """What is told, and what is asked later."""

    kind: str
    told: Turn
    asked: Turn


TOLD: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = {
    "name": (
        ("My name is {x}.", "Hi, I'm {x}.", "I am {x}.", "Call me {x}.", "People call me {x}.", "Hello, {x} here.",
         "I'm called {x}."),
        ("Nice to meet you, {x}!", "Hello {x}! How can I help you?"),
        ("What is my name?", "Do you remember my name?", "What's my name?", "Who am I?", "Tell me my name.", "my name?",
         "How am I called?", "Do you know who I am?"),
        "Your name is {x}.",
    ),
    "number": (
        ("Please remember the number {x}.", "Remember the number {x}.", "Keep the number {x} in mind.", "My lucky number is {x}.",
         "The secret number is {x}.", "Don't forget the number {x}."),
        ("Okay, I will remember {x}.", "Got it: {x}."),
        ("What number did I tell you?", "Which number should you remember?", "What was the number?", "Tell me the number.",
         "Do you remember the number?", "number?"),
        "The number is {x}.",
    ),
    "colour": (
        ("My favorite color is {x}.", "I like {x} most of all colors.", "The color I love most is {x}.",
         "{x} is my favorite color."),
        ("{x} is a nice color!", "I like {x} too."),
        ("What is my favorite color?", "Do you know my favorite color?", "Which color do I like most?", "What color do I love?"),
        "Your favorite color is {x}.",
    ),
    "pet": (
        ("I have {k} called {x}.", "My {n} is called {x}.", "I have {k}. Its name is {x}.", "The name of my {n} is {x}."),
        ("{x} is a lovely name for {k}!", "Say hello to {x}!"),
        ("What is the name of my {n}?", "What is my {n}'s name?", "How is my {n} called?", "What's my {n} called?",
         "Do you remember the name of my {n}?"),
        "Your {n} is called {x}.",
    ),
    "city": (
        ("I live in {x}.", "I am from {x}.", "My home is in {x}.", "I come from {x}."),
        ("{x} is a nice place!", "I have heard of {x}."),
        ("Where do I live?", "Where am I from?", "Which city do I live in?", "What is my home town?"),
        "You live in {x}.",
    ),
    "food": (
        ("My favorite food is {x}.", "I love eating {x}.", "I like {x} more than any other food."),
        ("{x}? That sounds good!", "Yummy!"),
        ("What is my favorite food?", "What do I like to eat?", "Which food do I like most?"),
        "Your favorite food is {x}.",
    ),
    "job": (
        ("I am {k}.", "I work as {k}.", "My job is {n}."),
        ("That is an interesting job!", "It must be nice to be {k}."),
        ("What is my job?", "What do I do for a living?", "What do I work as?"),
        "You are {k}.",
    ),
}  # fmt: skip


def words_of(rng: random.Random, kind: str) -> dict[str, str]:
    """Random content of a fact: x the value, n a noun and k the noun with its article."""
    if kind in ("pet", "job"):
        noun = rng.choice(ANIMALS if kind == "pet" else JOBS)
        return {"x": rng.choice(NAMES), "n": noun, "k": article(noun)}
    options = {
        "name": NAMES, "number": tuple(str(rng.randint(1, 9999 if rng.random() < 0.5 else 99)) for _ in range(1)),
        "colour": tuple(COLOURS), "city": CITIES, "food": FOODS,
    }  # fmt: skip
    return {"x": rng.choice(options[kind])}


def fact(rng: random.Random, kind: str | None = None) -> Fact:
    kind = kind or rng.choice(list(TOLD))
    told, heard, asked, answer = TOLD[kind]
    words = words_of(rng, kind)
    keep = frozenset(w.lower() for w in words.values())
    heard_text = rng.choice(heard).format(**words)
    return Fact(
        kind,
        Turn(_first_upper(rng.choice(told).format(**words)), _first_upper(heard_text)),
        Turn(vary(rng, rng.choice(asked).format(**words), keep), answer.format(**words)),
    )


def facts(rng: random.Random, count: int) -> list[Fact]:
    """Facts of different kinds, so that every question has one answer."""
    return [fact(rng, kind) for kind in rng.sample(list(TOLD), count)]


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
