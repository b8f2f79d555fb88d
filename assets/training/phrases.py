"""One question, said in many ways: spelling of both sides of the ocean, politeness, haste, slips of the finger."""

from __future__ import annotations

import random

_BRITISH = (
    ("color", "colour"),
    ("center", "centre"),
    ("gray", "grey"),
    ("favorite", "favourite"),
    ("neighbor", "neighbour"),
    ("recognize", "recognise"),
    ("labeled", "labelled"),
)
# Before a question with a question word; those with a colon or a comma also before "is", "are", "does".
_ASIDE = (
    "Please tell me: {}", "Please, {}", "Hey, {}", "Tell me, {}", "Excuse me, {}", "Quick question: {}", "Hi, {}",
    "One question: {}", "Question: {}", "Sorry, {}", "Hello! {}", "OK, {}", "So, {}", "Look: {}", "Tell me please: {}",
    "I have a question: {}", "My question: {}", "Be so kind: {}", "Help me out: {}", "Short question: {}", "So {}",
)  # fmt: skip
_BEFORE = (
    "Can you tell me {}", "Could you tell me {}", "I would like to know {}", "Do you know {}", "Please say {}",
    "I want to know {}", "Would you tell me {}", "I'd like to know: {}", "Could you please tell me {}",
    "Can you please say {}",
)  # fmt: skip
_AFTER = (
    ", please.", " please", ", please?", "??", "?!", " thanks", ", thank you", ", can you tell?", ", do you know?",
    " pls", "...", " ?", "!", ". Thanks!", ", please answer.",
)  # fmt: skip
_WH = frozenset(("what", "what's", "which", "where", "where's", "how", "who", "who's", "when", "why", "whose"))
_VERBS = frozenset(("is", "are", "does", "do", "did", "was", "were", "has"))
_FOLLOW = (
    "And {}", "Now {}", "And now, {}", "Next: {}", "Again: {}", "Also, {}", "OK, and {}", "Thanks. {}", "Good. {}", "Then {}",
    "One more: {}", "Another question: {}", "Right, {}", "Fine, {}", "Back to the picture: {}", "Look again: {}",
    "Look at it again. {}", "Same picture: {}", "And in the same picture: {}", "I see. {}", "Okay. {}", "Next question: {}",
    "One more question: {}", "Great, now {}", "Cool, {}", "And tell me: {}", "Still the same picture: {}", "Alright, {}",
)  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def british(text: str) -> str:
    for ours, theirs in _BRITISH:
        text = text.replace(ours, theirs).replace(ours.capitalize(), theirs.capitalize())
    return text


def british_half(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """British in one half of the cases, American in the other; a word that is asked for stays as it is."""
    if rng.random() < 0.5:
        text = " ".join(w if _plain(w) in keep else british(w) for w in text.split(" "))
    return text


def _plain(word: str) -> str:
    """Without its punctuation, in small letters."""
    return word.strip(".,:;?!()\"'").lower()


def _each(text: str, keep: frozenset[str], change: str) -> str:
    """A string method for every word outside `keep`."""
    return " ".join(w if _plain(w) in keep else str(getattr(w, change)()) for w in text.split(" "))


def first_lower(text: str) -> str:
    """A sentence to go on with; "I" and names like "TV" stay."""
    return text if text[:2] in ("I ", "I'") or text[1:2].isupper() else text[:1].lower() + text[1:]


def first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def misspelt(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """One slip in one longer word: a letter lost, doubled, swapped or wrong. Words in `keep` stay as they are."""
    words = text.split(" ")
    able = [i for i, w in enumerate(words) if len(w) > 3 and w.isalpha() and w.lower() not in keep]
    if not able or len(words) < 3:  # of a few words none can be missed
        return text
    i = rng.choice(able)
    word, at = words[i], rng.randrange(1, len(words[i]) - 1)
    words[i] = rng.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at] * 2 + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + rng.choice(_LETTERS) + word[at + 1 :],
            word[:at] + rng.choice(_LETTERS) + word[at:],
            word[:-1],
        )
    )
    return " ".join(words)


def slipped(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """As typed in haste: slips in words, a space or an apostrophe missing, a doubled space."""
    draw = rng.random()
    if draw < 0.2 and "'" in text:
        return text.replace("'", rng.choice(("", "", " ", "´")))
    if draw < 0.4:
        words = text.split(" ")
        able = [i for i in range(len(words) - 1) if not {_plain(words[i]), _plain(words[i + 1])} & keep]
        if able:
            i = rng.choice(able)
            glue = rng.choice(("", "", "  "))
            return " ".join([*words[:i], words[i] + glue + words[i + 1], *words[i + 2 :]])
    text = misspelt(rng, text, keep)
    return misspelt(rng, text, keep) if rng.random() < 0.3 else text


def vary(rng: random.Random, text: str, keep: frozenset[str] = frozenset()) -> str:
    """A random way to say it; half of the time the plain one. `keep`: words that carry the meaning."""
    text = british_half(rng, text, keep)
    draw, opening = rng.random(), text.split(" ")[0].lower()
    if draw < 0.12 and text.endswith("?") and opening in _WH | _VERBS:
        frames = _ASIDE if opening in _VERBS or rng.random() < 0.5 else _BEFORE
        text = rng.choice(frames).format(first_lower(text))
    elif draw < 0.22:
        text = first_lower(text).rstrip("?.!")
    elif draw < 0.28:
        text = first_lower(text)
    elif draw < 0.34:
        text = text.rstrip("?.!")
    elif draw < 0.4:
        text = text.rstrip("?.") + rng.choice(_AFTER)
    elif draw < 0.44:
        text = _each(text, keep, "lower").rstrip("?.!")
    elif draw < 0.45:
        text = _each(text, keep, "upper")
    elif draw < 0.47:
        text = text.replace(", ", " ").replace(": ", " ")
    elif draw < 0.85:
        text = first_upper(text)
    if rng.random() < 0.15:
        text = slipped(rng, text, keep)
    return text


def follow_up(rng: random.Random, text: str) -> str:
    """As a later turn of a conversation opens."""
    return rng.choice(_FOLLOW).format(first_lower(text))


def article(noun: str) -> str:
    spoken_open = (noun[0] in "aeiou" and not noun.startswith(("uni", "eu", "one", "us"))) or noun.startswith("hour")
    return ("an " if spoken_open else "a ") + noun


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
