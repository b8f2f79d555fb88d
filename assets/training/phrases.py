"""One question, said in many ways: spelling of both sides of the ocean, politeness, haste, slips of the finger."""

from __future__ import annotations

import random

_BRITISH = (
    ("color", "colour"),
    ("center", "centre"),
    ("gray", "grey"),
    ("favorite", "favourite"),
    ("neighbor", "neighbour"),
)
_POLITE = (
    "Please tell me: {}", "Can you tell me {}", "Could you tell me {}", "Please, {}", "Hey, {}", "Tell me, {}",
    "I would like to know {}", "Excuse me, {}", "Quick question: {}", "Do you know {}",
)  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def british(text: str) -> str:
    for ours, theirs in _BRITISH:
        text = text.replace(ours, theirs).replace(ours.capitalize(), theirs.capitalize())
    return text


def _lower_first(text: str) -> str:
    return text if text[:2] in ("I ", "I'") else text[:1].lower() + text[1:]


def misspelt(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """One slip in one longer word: a letter lost, doubled, swapped or wrong. Words in `keep` stay as they are."""
    words = text.split(" ")
    able = [i for i, w in enumerate(words) if len(w) > 3 and w.isalpha() and w.lower() not in keep]
    if not able:
        return text
    i = rng.choice(able)
    word, at = words[i], rng.randrange(1, len(words[i]) - 1)
    words[i] = rng.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + rng.choice(_LETTERS) + word[at + 1 :],
        )
    )
    return " ".join(words)


def vary(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """A random way to say it; half of the time the plain one. `keep`: words that carry the meaning."""
    if rng.random() < 0.5:
        text = british(text)
    draw = rng.random()
    if draw < 0.12 and text.endswith("?"):
        text = rng.choice(_POLITE).format(_lower_first(text))
    elif draw < 0.24:
        text = _lower_first(text).rstrip("?.!")
    elif draw < 0.32:
        text = _lower_first(text)
    elif draw < 0.38:
        text = text.rstrip("?.!")
    elif draw < 0.42:
        text = text.rstrip("?.") + rng.choice((", please.", " please", ", please?", "??"))
    if rng.random() < 0.1:
        text = misspelt(rng, text, keep)
    return text


def article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def plural(noun: str) -> str:
    if noun.endswith(("s", "x", "sh", "ch")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def listing(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
