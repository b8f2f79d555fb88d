"""Patterns with alternatives, "[What is|Tell me] the sum of {a} and {b}", and how their sentences are said."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from assets.training.heldout.reserved import is_free
from assets.training.phrases import british_half, first_lower, misspelt, vary

_QUESTION_WORDS = ("What", "Which", "How", "Who", "Where", "When", "Why", "At", "In", "On", "Of")


def every(pattern: str) -> list[str]:
    """All sentences of a pattern. Brackets may be nested; an empty alternative leaves the part out."""
    return list(dict.fromkeys(_alternatives(pattern)))


def _alternatives(text: str) -> Iterator[str]:
    return itertools.chain.from_iterable(_sequence(part) for part in _split(text))


def _split(text: str) -> list[str]:
    """Cut at the bars outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _bracket(text: str) -> tuple[str, str, str] | None:
    """What is before, in and after the first bracket, or None without any."""
    start = text.find("[")
    depth = 0
    for end in range(start, len(text)) if start >= 0 else ():
        depth += (text[end] == "[") - (text[end] == "]")
        if depth == 0:
            return text[:start], text[start + 1 : end], text[end + 1 :]
    assert start < 0, f"an open bracket in {text!r}"
    return None


def _sequence(text: str) -> Iterator[str]:
    found = _bracket(text)
    if found is None:
        yield text
        return
    before, inside, after = found
    for inner in _alternatives(inside):
        for rest in _sequence(after):
            yield before + inner + rest


def count(pattern: str) -> int:
    """How many sentences a pattern stands for, equal ones counted apart."""
    total = 0
    for text in _split(pattern):
        product, rest = 1, text
        while (found := _bracket(rest)) is not None:
            product, rest = product * count(found[1]), found[2]
        total += product
    return total


def one(rng: random.Random, pattern: str) -> str:
    """One sentence of a pattern; every alternative of a bracket is as likely."""
    text = rng.choice(_split(pattern))
    while (found := _bracket(text)) is not None:
        text = found[0] + one(rng, found[1]) + found[2]
    return text


_FEW = 800  # patterns with more sentences are not spelled out


class Forms(tuple[str, ...]):
    """All sentences of some patterns, but for those with very many; `draw` gives rare patterns a fair chance."""

    groups: list[list[str] | str]
    shares: list[float]

    @staticmethod
    def of(*patterns: str) -> Forms:
        small = {p: [t for t in every(p) if is_free(t)] for p in patterns if count(p) <= _FEW}
        made = Forms(dict.fromkeys(itertools.chain.from_iterable(small.values())))
        made.groups = [small.get(p, p) for p in patterns if small.get(p, p)]
        made.shares = [min(len(g), _FEW) ** 0.5 if isinstance(g, list) else _FEW**0.5 for g in made.groups]
        return made

    def draw(self, rng: random.Random) -> str:
        group = rng.choices(self.groups, self.shares)[0]
        if isinstance(group, list):
            return rng.choice(group)
        while not is_free(text := one(rng, group)):
            pass
        return text


def casual(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """Haste and slips of the finger, but nothing polite: for statements, greetings and half sentences."""
    draw = rng.random()
    if draw < 0.15:
        text = first_lower(text).rstrip("?.!")
    elif draw < 0.25:
        text = first_lower(text)
    elif draw < 0.35:
        text = text.rstrip("?.")
    elif draw < 0.38:
        text = text.rstrip("?.!") + ("??" if text.endswith("?") else "...")
    return misspelt(rng, text, keep) if rng.random() < 0.08 else text


def said(rng: random.Random, text: str, keep: str = "") -> str:
    """A question as somebody types it. What is polite already, or no whole question, gets no polite words around it."""
    kept = frozenset(keep.lower().split())
    if text.lower().count("please") > 1:
        text = text.replace(", please", "")
    whole = text.startswith(_QUESTION_WORDS) and text.endswith("?") and not {".", ":", ","} & set(text[:-1])
    return vary(rng, text, kept) if whole else casual(rng, british_half(rng, text, kept), kept)
