"""Single questions and answers about small knowledge. Evaluation uses other sentences: `heldout/chats.py`."""

from __future__ import annotations

import random
from collections.abc import Callable

from assets.training.chats.facts import CAPITALS, DAYS, MONTHS, OPPOSITES, THINGS_OF_COLOUR
from assets.training.chats.small_talk import BEYOND, FEELING_QUESTIONS, FEELINGS, LIVE, NO_PICTURE, TALK
from assets.training.documents import Turn
from assets.training.material import FEW_WORDS, Material
from assets.training.phrases import NUMBERS, vary

ASKED: dict[str, tuple[str, ...]] = {
    "sum": (
        "What is {a} {op} {b}?", "{a} {op} {b}", "Calculate {a} {op} {b}.", "how much is {a} {op} {b}?", "{a} {op} {b} = ?",
        "What does {a} {op} {b} make?", "Can you work out {a} {op} {b}?", "Solve {a} {op} {b}.", "{a} {op} {b} is?",
        "What's {a} {op} {b}?", "Tell me what {a} {op} {b} is.", "Please compute {a} {op} {b}.", "{a} {op} {b} equals what?",
    ),
    "story_sum": (
        "I have {a} apples and get {b} more. How many do I have?", "Tom has {a} coins and finds {b}. How many now?",
        "There are {a} birds and {b} more come. How many birds are there?",
    ),
    "story_minus": (
        "I have {a} apples and eat {b}. How many are left?", "There are {a} birds and {b} fly away. How many stay?",
        "Anna had {a} coins and spent {b}. How many does she have now?",
    ),
    "capital": (
        "What is the capital of {x}?", "Tell me the capital of {x}.", "capital of {x}?", "Which city is the capital of {x}?",
        "What's {x}'s capital?", "Name the capital of {x}.", "Do you know the capital of {x}?", "{x} capital?",
        "What city is the capital of {x}?", "The capital of {x}, please.", "Which is the capital city of {x}?",
    ),
    "country": ("Which country has the capital {x}?", "{x} is the capital of which country?",
        "Of which country is {x} the capital?"),
    "next": (
        "What {k} comes after {x}?", "Which {k} is after {x}?", "What is the {k} after {x}?", "{k} after {x}?",
        "Which {k} follows {x}?", "What comes after {x}?", "Today is {x}. What is tomorrow?",
    ),
    "before": (
        "What {k} comes before {x}?", "Which {k} is before {x}?", "What is the {k} before {x}?", "{k} before {x}?",
        "What comes before {x}?", "Today is {x}. What was yesterday?",
    ),
    "spell": (
        "Spell the word {x}.", "How do you spell {x}?", "Spell {x}.", "Can you spell {x}?", "How is {x} spelled?",
        "How is {x} spelt?", "Spell {x} for me.", "What is the spelling of {x}?", "Which letters are in {x}?", "spelling of {x}",
        "Please write {x} letter by letter.",
    ),
    "opposite": (
        "What is the opposite of {x}?", "Opposite of {x}?", "Tell me the opposite of {x}.", "What's the opposite of {x}?",
        "Which word means the opposite of {x}?", "Give me the opposite of {x}.", "What is the contrary of {x}?",
        "{x} is the opposite of what?", "Name the opposite of {x}.",
    ),
    "define": (
        "What does {x} mean?", "Define {x}.", "What is the meaning of {x}?", "Explain the word {x}.",
        "What does the word {x} mean?",
        "meaning of {x}?", "Can you define {x}?", "Give me a definition of {x}.", "What is meant by {x}?",
        "Tell me what {x} means.",
    ),
    "sentence": (
        "Use the word {x} in a sentence.", "Write a sentence with {x}.", "Give me an example sentence with {x}.",
        "Make a sentence with the word {x}.", "How can I use {x} in a sentence?",
    ),
    "colour_of": ("Name something {x}.", "What is {x}?", "Tell me something that is {x}.", "Which thing is {x}?"),
}  # fmt: skip
# Shares of single questions.
_SHARES = {
    "talk": 14, "feeling": 6, "sum": 18, "capital": 9, "calendar": 7, "spell": 10, "opposite": 9, "define": 14, "sentence": 3,
    "colour": 2, "no_picture": 4, "live": 4, "beyond": 8,
}  # fmt: skip
_OPERATIONS = {
    "plus": ("plus", "+", "and", "added to"),
    "minus": ("minus", "-", "take away"),
    "times": ("times", "*", "x"),
}


def _asked(rng: random.Random, kind: str, keep: str, **words: str) -> str:
    return vary(rng, rng.choice(ASKED[kind]).format(**words), frozenset(keep.lower().split()))


def sum_turn(rng: random.Random) -> Turn:
    """Sums and differences up to 20, products of numbers up to 10; sometimes in words, sometimes as a story."""
    name = rng.choice(("plus", "plus", "minus", "minus", "times"))
    a, b = (rng.randint(0, 10) for _ in range(2)) if name == "times" else (rng.randint(0, 20) for _ in range(2))
    if name == "minus":
        a, b = max(a, b), min(a, b)
    value = {"plus": a + b, "minus": a - b, "times": a * b}[name]
    if name != "times" and rng.random() < 0.12:
        kind = "story_sum" if name == "plus" else "story_minus"
        return Turn(
            _asked(rng, kind, "", a=str(a), b=str(b)),
            f"{a} {'+' if name == 'plus' else '-'} {b} = {value}, so {value}.",
        )
    op = rng.choice(_OPERATIONS[name])
    first, second = str(a), str(b)
    if op.isalpha() and max(a, b) <= 12 and rng.random() < 0.3:
        first, second = NUMBERS[a], NUMBERS[b]
    asked = _asked(rng, "sum", f"{first} {op} {second}", a=first, b=second, op=op)
    sign = {"plus": "plus", "minus": "minus", "times": "times"}[name]
    return Turn(asked, rng.choice((f"{a} {sign} {b} is {value}.", f"The answer is {value}.")))


def calendar_turn(rng: random.Random) -> Turn:
    table, kind = (DAYS, "day") if rng.random() < 0.6 else (MONTHS, "month")
    i, after = rng.randrange(len(table)), rng.random() < 0.6
    options = [t for t in ASKED["next" if after else "before"] if kind == "day" or "Today" not in t]
    asked = vary(rng, rng.choice(options).format(k=kind, x=table[i]), frozenset({table[i].lower()}))
    found = table[(i + (1 if after else -1)) % len(table)]
    return Turn(asked, f"{found} comes {'after' if after else 'before'} {table[i]}.")


def define_turn(rng: random.Random, material: Material) -> Turn:
    word, gloss = rng.choice(list(material.glosses.items()))
    return Turn(_asked(rng, "define", word, x=word), f"{word.capitalize()} means: {gloss}.")


def opposite_turn(rng: random.Random, material: Material) -> Turn:
    table = material.opposites if material.opposites and rng.random() < 0.4 else OPPOSITES
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
    exchanges = {"no_picture": NO_PICTURE, "live": LIVE, "beyond": BEYOND}
    if kind == "talk" or kind in exchanges:
        questions, answers = exchanges.get(kind) or rng.choice(TALK)
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
