"""Single questions and answers about small knowledge. Evaluation uses other sentences: `heldout/chats.py`."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from assets.training.chats.facts import CAPITALS, DAYS, MONTHS, OPPOSITES, THINGS_OF_COLOUR
from assets.training.chats.grammar import said
from assets.training.chats.refusals import NO_PICTURE, REFUSALS
from assets.training.chats.small_talk import FEELING_QUESTIONS, FEELINGS, TALK
from assets.training.chats.wording import ASKED, DIFFERENCES, PRODUCTS, SUMS
from assets.training.documents import Turn
from assets.training.material import FEW_WORDS, Material
from assets.training.phrases import NUMBERS, article, vary

# Shares of single questions.
_SHARES = {
    "talk": 14, "feeling": 6, "sum": 18, "capital": 9, "calendar": 7, "spell": 10, "opposite": 9, "define": 18, "sentence": 3,
    "colour": 2, "no_picture": 5, "refusal": 15,
}  # fmt: skip
_PEOPLE = ("Tom", "Anna", "My sister", "The farmer", "A boy", "Ben", "My friend", "Grandma")
_COUNTED = ("apples", "coins", "birds", "books", "cookies", "stamps", "balls", "cards", "eggs", "pencils", "flowers")


def _asked(rng: random.Random, kind: str, keep: str, **words: str) -> str:
    return said(rng, ASKED[kind].draw(rng).format(**words), keep)


def sum_turn(rng: random.Random) -> Turn:
    """Sums and differences up to 20, products of numbers up to 10; sometimes in words, sometimes as a story."""
    name = rng.choices(("plus", "minus", "times"), (45, 40, 15))[0]
    a, b = (rng.randint(0, 10) for _ in range(2)) if name == "times" else (rng.randint(0, 20) for _ in range(2))
    if name == "minus":
        a, b = max(a, b), min(a, b)
    value = {"plus": a + b, "minus": a - b, "times": a * b}[name]
    first, second = str(a), str(b)
    if max(a, b) <= 12 and rng.random() < 0.15:
        first, second = NUMBERS[a], NUMBERS[b]
    words = {"a": first, "b": second}
    draw = rng.random()
    if name != "times" and draw < 0.12:
        kind = "story_sum" if name == "plus" else "story_minus"
        words |= {"things": rng.choice(_COUNTED), "who": rng.choice(_PEOPLE), "get": "get"}
        sign = "+" if name == "plus" else "-"
        return Turn(_asked(rng, kind, f"{first} {second}", **words), f"{a} {sign} {b} = {value}, so {value}.")
    if name != "times" and draw < 0.35:
        asked = _asked(rng, "add" if name == "plus" else "subtract", f"{first} {second}", **words)
    else:
        core = {"plus": SUMS, "minus": DIFFERENCES, "times": PRODUCTS}[name].draw(rng).format(**words)
        asked = _asked(rng, "calculate", core, s=core)
    return Turn(asked, rng.choice((f"{a} {name} {b} is {value}.", f"The answer is {value}.")))


def calendar_turn(rng: random.Random) -> Turn:
    """The day or month after or before another one."""
    table, kind = (DAYS, "day") if rng.random() < 0.7 else (MONTHS, "month")
    i, after = rng.randrange(len(table)), rng.random() < 0.6
    form = "after" if after else "before"
    if kind == "day" and rng.random() < 0.3:
        form = "tomorrow" if after else "yesterday"
    found = table[(i + (1 if after else -1)) % len(table)]
    asked = ASKED[form].draw(rng).format(k=kind, x=table[i])
    if form in ("tomorrow", "yesterday") and asked.startswith(
        ("Yesterday was", "If yesterday", "Tomorrow is", "If tomorrow")
    ):
        return Turn(said(rng, asked, table[i]), f"Today is {found}.")
    return Turn(said(rng, asked, table[i]), f"{found} comes {'after' if after else 'before'} {table[i]}.")


@lru_cache(maxsize=2)
def _common_words(nouns: tuple[str, ...], known: frozenset[str]) -> list[str]:
    return [w for w in nouns if w in known][:1000]


def common_words(material: Material) -> list[str]:
    """The thousand nouns that people use most and that have a definition."""
    return _common_words(tuple(material.nouns[:2000]), frozenset(material.glosses)) or list(material.glosses)


def define_turn(rng: random.Random, material: Material) -> Turn:
    word = rng.choice(common_words(material) if rng.random() < 0.8 else list(material.glosses))
    gloss = material.glosses[word]
    if rng.random() < 0.3:
        asked = _asked(rng, "define_noun", word, x=word, t=article(word))
    else:
        asked = _asked(rng, "define", word, x=word)
    return Turn(asked, f"{word.capitalize()} means: {gloss}.")


def opposite_turn(rng: random.Random, material: Material) -> Turn:
    table = material.opposites if material.opposites and rng.random() < 0.2 else OPPOSITES
    pair = rng.choice(table)
    a, b = pair if rng.random() < 0.5 or pair[0] in ("old", "light") else (pair[1], pair[0])
    if any(x == a and y != b for x, y in OPPOSITES) and (a, b) not in OPPOSITES:
        b = next(y for x, y in OPPOSITES if x == a)  # one answer per word
    return Turn(_asked(rng, "opposite", a, x=a), f"The opposite of {a} is {b}.")


def capital_turn(rng: random.Random) -> Turn:
    country, city = rng.choice(list(CAPITALS.items()))
    if rng.random() < 0.15:
        return Turn(_asked(rng, "country", city, x=city), f"{city} is the capital of {country}.")
    return Turn(_asked(rng, "capital", country, x=country), f"The capital of {country} is {city}.")


def spell_turn(rng: random.Random, material: Material) -> Turn:
    word = rng.choice(material.words or FEW_WORDS)
    return Turn(_asked(rng, "spell", word, x=word), f"{'-'.join(word)}.")


def sentence_turn(rng: random.Random, material: Material) -> Turn:
    word, example = rng.choice(material.examples)
    return Turn(_asked(rng, "sentence", word, x=word), example)


def colour_turn(rng: random.Random) -> Turn:
    colour, thing = rng.choice(list(THINGS_OF_COLOUR.items()))
    return Turn(_asked(rng, "colour_of", colour, x=colour), f"{thing} is {colour}.")


def template_turn(rng: random.Random, material: Material) -> Turn:
    """One question of any kind."""
    kind = rng.choices(list(_SHARES), list(_SHARES.values()))[0]
    if kind in ("no_picture", "refusal"):
        refused = NO_PICTURE if kind == "no_picture" else rng.choice(list(REFUSALS.values()))
        return Turn(said(rng, refused.asked.draw(rng).strip()), rng.choice(refused.answers))
    if kind == "talk":
        questions, answers = rng.choice(TALK)
        return Turn(vary(rng, rng.choice(questions)), rng.choice(answers))
    if kind == "feeling":
        feeling = rng.choice(list(FEELINGS))
        asked = rng.choice(FEELING_QUESTIONS).format(f=feeling)
        return Turn(vary(rng, asked, frozenset({feeling})), rng.choice(FEELINGS[feeling]))
    makers: dict[str, Callable[[], Turn]] = {
        "colour": lambda: colour_turn(rng),
        "opposite": lambda: opposite_turn(rng, material),
        "spell": lambda: spell_turn(rng, material),
        "capital": lambda: capital_turn(rng),
        "calendar": lambda: calendar_turn(rng),
    }
    if material.glosses:
        makers["define"] = lambda: define_turn(rng, material)
    if material.examples:
        makers["sentence"] = lambda: sentence_turn(rng, material)
    return makers.get(kind, lambda: sum_turn(rng))()
