"""Facts told at the start of a conversation and asked for at its end."""

from __future__ import annotations

import random
from typing import NamedTuple

from assets.training.chats.facts import ANIMALS, CAPITALS, CITIES, DAYS, FOODS, JOBS, MONTHS, NAMES
from assets.training.chats.grammar import casual, said
from assets.training.chats.told import AROUND, CORRECTED, HEARD_CORRECTION, PLAIN, TOLD, UNTOLD
from assets.training.documents import Turn
from assets.training.phrases import article, first_upper
from assets.training.pictures.canvas import COLOURS


class Fact(NamedTuple):
    """What is told, and what is asked later."""

    kind: str
    told: Turn
    asked: Turn
    plain: str = ""
    before: Turn | None = None  # a wrong one that `told` corrects


_MORE_NAMES = (
    "Adam", "Aisha", "Albert", "Amy", "Andrew", "Angela", "Arthur", "Ava", "Barbara", "Bella", "Bill", "Bob", "Carol", "Charlie",
    "Claire", "Colin", "Dana", "Diana", "Dylan", "Edward", "Elena", "Elias", "Emily", "Eric", "Eva", "Frank", "Fred", "George",
    "Gina", "Greg", "Harry", "Helen", "Henry", "Holly", "Ian", "Irene", "Isaac", "Jacob", "James", "Jane", "Jason", "Jenny",
    "Joe", "John", "Josh", "Judy", "Kevin", "Kim", "Lara", "Liam", "Lily", "Linda", "Lisa", "Lucas", "Lucy", "Luke", "Marco",
    "Maria", "Mark", "Mary", "Matt", "Maya", "Megan", "Mike", "Milo", "Monica", "Nadia", "Nathan", "Nick", "Oliver", "Omar",
    "Pedro", "Philip", "Quinn", "Rachel", "Ralph", "Rita", "Rob", "Roger", "Ruth", "Ryan", "Sally", "Simon", "Stella", "Steve",
    "Susan", "Sven", "Tara", "Tim", "Toby", "Uma", "Vince", "Wendy", "Will", "Xenia", "Yusuf", "Zack", "Zara",
    "Abby", "Agnes", "Alan", "Alex", "Alma", "Anton", "Astrid", "Bea", "Beth", "Boris", "Brian", "Bridget", "Carlos", "Celia",
    "Cora", "Dennis", "Derek", "Dora", "Edith", "Edna", "Elsa", "Erin", "Ernest", "Esther", "Fiona", "Flora", "Gavin", "Gloria",
    "Hans", "Hazel", "Heidi", "Igor", "Ingrid", "Ivy", "Jasper", "Joan", "Jonas", "Joy", "Juan", "Kevan", "Klaus", "Leah",
    "Lewis", "Louis", "Mabel", "Mara", "Marta", "Mateo", "Mona", "Morris", "Naomi", "Niels", "Norman", "Opal", "Orla", "Pablo",
    "Pam", "Petra", "Priya", "Rebecca", "Rex", "Rufus", "Samir", "Selma", "Silvia", "Tessa", "Thomas", "Vivian", "Zelda",
)  # fmt: skip
_ALL_NAMES = (*NAMES, *_MORE_NAMES)
_MORE_CITIES = (
    "Chicago", "Seattle", "Denver", "Miami", "Houston", "Dallas", "Munich", "Hamburg", "Cologne", "Milan", "Venice", "Naples",
    "Porto", "Seville", "Lyon", "Nice", "Geneva", "Zurich", "Glasgow", "Leeds", "Bristol", "Cork", "Bergen", "Malmo", "Mumbai",
    "Delhi", "Osaka", "Kyoto", "Shanghai", "Sydney", "Perth", "Toronto", "Montreal", "Vancouver", "Lagos", "Cape Town", "Dubai",
)  # fmt: skip
_ALL_CITIES = (*CITIES, *_MORE_CITIES, *(c for c in CAPITALS.values() if "," not in c))


_FOODS = (
    *FOODS, "noodles", "sushi", "tacos", "curry", "burgers", "sausages", "beans", "lasagna", "porridge", "stew", "dumplings",
    "omelets", "ice cream", "strawberries", "mangoes", "potatoes", "mushrooms", "popcorn", "yogurt", "waffles", "steak",
    "bananas", "risotto", "peas", "carrots", "cookies", "sandwiches", "oranges", "lentils", "pie",
)  # fmt: skip
_JOBS = (
    *JOBS, "gardener", "plumber", "dentist", "lawyer", "tailor", "waiter", "librarian", "carpenter", "sailor", "student",
    "actor", "electrician", "mechanic", "hairdresser", "photographer", "engineer", "judge", "postman", "butcher", "florist",
    "scientist", "dancer", "musician", "guard", "journalist", "farmhand", "goldsmith", "vet", "coach", "clerk",
)  # fmt: skip
_ANIMALS = (
    *ANIMALS, "goat", "duck", "goose", "mouse", "snake", "lizard", "canary", "guinea pig", "donkey", "hen", "sheep", "frog",
    "puppy", "kitten", "budgie", "ferret",
)  # fmt: skip
_HOBBIES = (
    "painting", "chess", "fishing", "swimming", "reading", "dancing", "hiking", "cooking", "knitting", "gardening", "singing",
    "cycling", "running", "tennis", "football", "yoga", "photography", "sewing", "skiing", "baking", "climbing", "sailing",
    "drawing", "pottery", "skating", "surfing", "puzzles", "birdwatching", "basketball", "origami", "judo", "camping",
)  # fmt: skip
_PEOPLE = (
    "best friend", "boss", "neighbor", "cousin", "teacher", "doctor", "colleague", "classmate", "roommate", "coach",
)  # fmt: skip
_THINGS = (
    "key", "wallet", "phone", "bag", "umbrella", "passport", "hat", "book", "watch", "ticket", "coat", "camera", "letter",
)  # fmt: skip
_SPOTS = tuple(
    f"{where} {what}"
    for where, many in (
        ("on", ("table", "shelf", "desk", "sofa", "chair", "bed", "window sill", "piano", "kitchen counter", "stairs")),
        ("in", ("drawer", "car", "garage", "blue box", "kitchen", "cupboard", "basket", "bathroom", "cellar", "garden")),
        ("under", ("bed", "mat", "sofa", "table", "pillow", "flower pot")),
        ("behind", ("door", "lamp", "clock", "mirror", "curtain")),
    )
    for what in (f"the {name}" for name in many)
)  # fmt: skip
_WORDS = (
    "lantern", "banana", "thunder", "velvet", "pepper", "rocket", "meadow", "copper", "tulip", "anchor", "pirate", "marble",
    "comet", "walnut", "harbor", "puzzle", "cactus", "sunrise", "willow", "dragon", "pumpkin", "crystal", "feather", "maple",
    "violin", "saddle", "bubble", "castle", "ginger", "falcon", "mirror", "island", "button", "cherry", "zebra", "magnet",
    "candle", "planet", "turnip", "whistle", "blanket", "compass", "hammock", "acorn", "orbit", "pickle", "ribbon", "summit",
)  # fmt: skip
_DATES = (
    "appointment",
    "exam",
    "job interview",
    "dentist appointment",
    "piano lesson",
    "party",
    "meeting",
    "driving test",
)
_NOUNS = {"pet": _ANIMALS, "job": _JOBS, "friend": _PEOPLE, "keys": _THINGS, "day": _DATES}
# Kinds whose questions could mean each other's answer are not told together.
_ALIKE = ({"number", "age"}, {"number", "word"}, {"name", "friend"}, {"job", "hobby"})
_VALUES = {
    "name": _ALL_NAMES, "colour": tuple(COLOURS), "city": _ALL_CITIES, "food": _FOODS, "pet": _ALL_NAMES, "job": _JOBS,
    "month": MONTHS, "age": tuple(map(str, range(5, 100))), "hobby": _HOBBIES, "friend": _ALL_NAMES, "keys": _SPOTS,
    "word": _WORDS, "day": DAYS,
}  # fmt: skip


def words_of(rng: random.Random, kind: str) -> dict[str, str]:
    """Random content of a fact: x the value, n a noun and k the noun with its article."""
    noun = rng.choice(_NOUNS.get(kind, ("",)))
    value = str(rng.randint(1, 10 ** rng.choice((2, 3, 4, 4)) - 1)) if kind == "number" else rng.choice(_VALUES[kind])
    if kind == "job":
        value = article(noun)
    return {"x": value, "n": noun, "k": article(noun) if noun else ""}


def fact(rng: random.Random, kind: str | None = None) -> Fact:
    """A fact of a kind; one in ten was told wrong before, which `before` holds."""
    kind = kind or rng.choice(list(TOLD))
    how, words = TOLD[kind], words_of(rng, kind)
    keep = " ".join(words.values())
    kept = frozenset(keep.lower().split())
    asked = Turn(said(rng, first_upper(how.asked.draw(rng).format(**words)), keep), how.answer.format(**words))
    plain, before, heard = first_upper(PLAIN[kind].format(**words)) + ".", None, how.heard
    told = casual(rng, first_upper(how.told.draw(rng).format(**words)), kept)
    wrong = words | {k: v for k, v in words_of(rng, kind).items() if k == "x"}
    if rng.random() < 0.1 and wrong["x"] != words["x"] and kind not in ("job", "keys"):
        before = Turn(told_as(rng, kind, wrong), first_upper(rng.choice(heard).format(**wrong)))
        told = CORRECTED.draw(rng).format(plain=PLAIN[kind].format(**words), x=words["x"], old=wrong["x"])
        heard = HEARD_CORRECTION
    elif rng.random() < 0.15:
        told = " ".join(rng.sample((plain, rng.choice(AROUND)), 2))
        told = told if rng.random() < 0.6 else f"{told} {rng.choice([a for a in AROUND if a not in told])}"
    return Fact(kind, Turn(told, first_upper(rng.choice(heard).format(**words))), asked, plain, before)


def told_as(rng: random.Random, kind: str, words: dict[str, str]) -> str:
    """A fact as it is told."""
    return first_upper(TOLD[kind].told.draw(rng).format(**words))


def facts(rng: random.Random, count: int) -> list[Fact]:
    """Facts of different kinds, so that every question has one answer."""
    kinds: list[str] = []
    for kind in rng.sample(list(TOLD), len(TOLD)):
        if len(kinds) < count and not any(kind in pair and pair & set(kinds) for pair in _ALIKE):
            kinds.append(kind)
    return [fact(rng, kind) for kind in kinds]


def telling(rng: random.Random, kept: list[Fact]) -> list[Turn]:
    """The turns that tell some facts: one by one, or sometimes all in one message."""
    if len(kept) > 1 and rng.random() < 0.3 and not any(f.before for f in kept):
        heard = ("Thank you, I will remember all of that.", "Got it, I will remember that.", "Nice to know, thank you!")
        return [Turn(" ".join(f.plain for f in kept), rng.choice(heard))]
    return [turn for f in kept for turn in ((f.before, f.told) if f.before else (f.told,))]


def untold(rng: random.Random, known: frozenset[str] = frozenset()) -> Turn:
    """A question for something that the user has not said."""
    taken = known.union(*(pair for pair in _ALIKE if pair & known))
    kind = rng.choice([k for k in UNTOLD if k not in taken])
    what = UNTOLD[kind]
    asked = said(rng, first_upper(TOLD[kind].asked.draw(rng).format(x="", n="", k="")))
    return Turn(
        asked, rng.choice((f"I don't know {what}. You have not told me.", "I don't know. You have not told me."))
    )
