"""Single questions and answers about small knowledge. Evaluation uses other sentences: `heldout/chats.py`."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from assets.training.chats.everyday import everyday_turn
from assets.training.chats.facts import CAPITALS, DAYS, MONTHS, OPPOSITES, THINGS_OF_COLOUR
from assets.training.chats.grammar import said
from assets.training.chats.refusals import NO_PICTURE, REFUSALS
from assets.training.chats.small_talk import FEELING_QUESTIONS, FEELINGS, TALK
from assets.training.chats.wording import ASKED, DIFFERENCES, PRODUCTS, SUMS
from assets.training.documents import Turn
from assets.training.material import FEW_WORDS, Material
from assets.training.phrases import NUMBERS, article, first_upper

# Shares of single questions.
_SHARES = {
    "talk": 12, "feeling": 4, "sum": 17, "capital": 9, "calendar": 7, "spell": 10, "opposite": 9, "define": 30, "sentence": 2,
    "colour": 1, "no_picture": 5, "refusal": 14, "everyday": 10,
}  # fmt: skip
# Words that refusals are about: what they mean it can say.
_BORDER = (
    "program", "computer", "medicine", "doctor", "disease", "pain", "fever", "law", "lawyer", "contract", "tax", "money", "stock",
    "news", "weather", "price", "president", "traffic", "language", "translation", "essay", "book", "music", "song", "alarm",
    "letter", "hotel", "ticket", "picture", "photograph", "image", "drawing", "future", "secret", "election", "train", "code",
)  # fmt: skip
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
    if name != "times" and draw < 0.12 and min(a, b) > 1:
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


@lru_cache(maxsize=2)
def _noun_set(nouns: tuple[str, ...]) -> frozenset[str]:
    return frozenset(nouns)


def define_turn(rng: random.Random, material: Material) -> Turn:
    draw = rng.random()
    border = [w for w in _BORDER if w in material.glosses] if draw < 0.04 else []
    word = rng.choice(border or (common_words(material) if draw < 0.87 else list(material.glosses)))
    gloss = material.glosses[word]
    counted = gloss.startswith(("a ", "an ", "any ", "someone ")) and not word.endswith(
        ("s", "ness", "ment", "ity", "ion", "ance")
    )
    if rng.random() < 0.25 and word in _noun_set(tuple(material.nouns)):
        asked = _asked(rng, "define_noun", word, x=word, t=article(word) if counted else word)
    else:
        asked = _asked(rng, "define", word, x=word)
    return Turn(asked, f"{word.capitalize()} means: {gloss}.")


@lru_cache(maxsize=4)
def _opposites(more: tuple[tuple[str, str], ...] = ()) -> list[tuple[str, str]]:
    """One answer per word: what stands first in our own table counts, then what WordNet adds."""
    known: dict[str, str] = {}
    for table in (OPPOSITES, tuple((b, a) for a, b in OPPOSITES)):
        for a, b in table:
            known.setdefault(a, b)
    own = set(known)
    clear = [
        (a, b)
        for a, b in more
        if not {a, b} & own and sum(x == a for x, _ in more) == 1 and (a.endswith(b) or b.endswith(a))
    ]
    return [*known.items()] if not more else clear or [*known.items()]


def opposite_turn(rng: random.Random, material: Material) -> Turn:
    a, b = rng.choice(_opposites(tuple(material.opposites) if rng.random() < 0.1 else ()))
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
        return Turn(said(rng, questions.draw(rng)), rng.choice(answers))
    if kind == "feeling":
        feeling = rng.choice(list(FEELINGS))
        asked = FEELING_QUESTIONS.draw(rng).format(f=feeling)
        return Turn(said(rng, first_upper(asked), feeling), rng.choice(FEELINGS[feeling]))
    makers: dict[str, Callable[[], Turn]] = {
        "everyday": lambda: everyday_turn(rng),
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
