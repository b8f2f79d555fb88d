"""One evaluation item, and how answers are judged. Judges read the words of an answer, not its exact form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from PIL import Image

Judge = Callable[[str], bool]
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_VALUE = {word: i for i, word in enumerate(_NUMBERS)} | {"no": 0, "none": 0, "an": 1, "a": 1}
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "gray", "grey")
SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring", "hexagon")


@dataclass(frozen=True)
class Ask:
    """A question the model answers itself."""

    text: str
    pictures: tuple[Image.Image, ...] = ()


@dataclass(frozen=True)
class Item:
    """`before`: turns with given answers; `asks`: what the model is asked, the last answer is judged."""

    task: str
    asks: tuple[Ask, ...]
    judge: Judge
    wanted: str
    before: tuple[tuple[str, str], ...] = ()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def has_phrase(text: str, phrase: str) -> bool:
    return f" {' '.join(words(phrase))} " in f" {' '.join(words(text))} "


def only(accepted: Iterable[str], among: Iterable[str]) -> Judge:
    """Says one of `accepted` (singular or plural) and none of the others in `among`."""
    good = {form for word in accepted for form in (word, f"{word}s", f"{word}es")}
    every = {form: word for word in among for form in (word, f"{word}s", f"{word}es")}

    def judge(answer: str) -> bool:
        said = {w for w in words(answer) if w in every or w in good}
        return bool(said) and said <= good

    return judge


def colour(name: str) -> Judge:
    return only(("gray", "grey") if name in ("gray", "grey") else (name,), COLOURS)


def shape(name: str) -> Judge:
    return only((name,), SHAPES)


def place(zone: str) -> Judge:
    """The words for the row and the column, and no others; the middle has several names."""
    middle = ("center", "centre", "middle")

    def judge(answer: str) -> bool:
        said = {w for w in words(answer) if w in ("top", "bottom", "left", "right")}
        if zone == "center":
            return not said and any(w in middle for w in words(answer))
        return said == set(zone.split())

    return judge


def last_number(answer: str, articles: bool = False) -> float | None:
    """The last number, in digits or words; articles count as one only where counting is asked."""
    found: list[float] = []
    for word in re.findall(r"\d[\d,]*(?:\.\d+)?|[a-z]+", answer.lower()):
        if word[0].isdigit():
            found.append(float(word.replace(",", "")))
        elif word in _VALUE and (articles or word not in ("a", "an")):
            found.append(float(_VALUE[word]))
    return found[-1] if found else None


def number(value: float, tolerance: float = 0.0) -> Judge:
    def judge(answer: str) -> bool:
        said = last_number(answer)
        said = last_number(answer, articles=True) if said is None else said
        return said is not None and abs(said - value) <= tolerance * abs(value)

    return judge


def yes_no(wanted: bool) -> Judge:
    def judge(answer: str) -> bool:
        said = [w for w in words(answer) if w in ("yes", "no", "not")]
        return bool(said) and (said[-1] == "yes") == wanted

    return judge


def written(text: str) -> Judge:
    """The last word, letters compared without case; what is spelled before does not count."""

    def judge(answer: str) -> bool:
        quoted = re.findall(r'"([^"]+)"', answer)
        said = quoted[-1] if quoted else (words(answer) or [""])[-1]
        return said.lower().strip(".") == text.lower()

    return judge


def any_of(phrases: Iterable[str]) -> Judge:
    forms = [f for p in phrases for f in (p, f"{p}s")]
    return lambda answer: any(has_phrase(answer, f) for f in forms)


def spelled(word: str) -> Judge:
    return lambda answer: re.sub(r"[^a-z]", "", answer.lower().replace(f"{word} is spelled", "")) == word


def covers(gloss: str, share: float = 0.6) -> Judge:
    """At least that share of the definition's longer words."""
    wanted = {w for w in words(gloss) if len(w) > 3}
    return lambda answer: bool(wanted) and len(wanted & set(words(answer))) >= share * len(wanted)


_REFUSAL = re.compile(
    r"can't|cannot|can not|don't know|don't see|do not know|no picture|not able|sorry|no access|not sure|add one|too small|empty"
)


def refuses(answer: str) -> bool:
    return bool(_REFUSAL.search(answer.lower()))
