"""Word lists, definitions, opposites and example sentences from WordNet's own database files."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

_KINDS = {"noun": "n", "verb": "v", "adj": "a"}
_MOST = {"noun": 3500, "verb": 800, "adj": 800}


class Synset(NamedTuple):
    """One meaning."""

    words: list[str]
    gloss: str
    examples: list[str]
    opposites: list[tuple[int, str, int]]  # (own word number, offset of the other meaning, its word number), from 1


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="latin-1").splitlines() if not line.startswith("  ")]


def _meaning(line: str) -> tuple[str, Synset]:
    head, _, text = line.partition(" | ")
    fields = head.split(" ")
    count = int(fields[3], 16)
    words = [re.sub(r"\(.*\)", "", fields[4 + 2 * i]) for i in range(count)]
    opposites, start = [], 4 + 2 * count
    for i in range(int(fields[start])):
        sign, offset, _, numbers = fields[start + 1 + 4 * i : start + 5 + 4 * i]
        if sign == "!":
            opposites.append((int(numbers[:2], 16), offset, int(numbers[2:], 16)))
    parts = text.strip().split('"')
    gloss = re.sub(r"^\([^)]*\)\s*", "", parts[0].strip().rstrip(";")).split(";")[0].strip()
    return fields[0], Synset(words, gloss, [p.strip() for p in parts[1::2]], opposites)


def _common(folder: Path) -> dict[str, list[str]]:
    """The words that were seen most in tagged text, per kind."""
    seen: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
    number = {"1": "noun", "2": "verb", "3": "adj", "5": "adj"}
    for line in _lines(folder / "cntlist.rev"):
        key, _, count = line.split()
        word, _, rest = key.partition("%")
        kind = number.get(rest[:1])
        if kind and word.isalpha() and word.islower() and len(word) > 2:
            seen[kind][word] += int(count)
    return {kind: [w for w, _ in counts.most_common(_MOST[kind])] for kind, counts in seen.items()}


def read_wordnet(folder: Path) -> dict[str, Any]:
    """nouns, verbs, adjectives by frequency; glosses {word: definition}; opposites; examples [(word, sentence)]."""
    meanings = {kind: dict(map(_meaning, _lines(folder / f"data.{kind}"))) for kind in _KINDS}
    common = _common(folder)
    glosses: dict[str, str] = {}
    for kind, words in common.items():
        first = {}
        for line in _lines(folder / f"index.{kind}"):
            fields = line.split()
            first[fields[0]] = fields[6 + int(fields[3])]
        for word in words:
            meaning = meanings[kind].get(first.get(word, ""))
            if meaning and 8 < len(meaning.gloss) < 100 and meaning.gloss.isascii():
                glosses.setdefault(word, meaning.gloss)
    opposites = set()
    known = set(common["adj"])
    for meaning in meanings["adj"].values():
        for own, offset, other in meaning.opposites:
            if own and other and offset in meanings["adj"]:
                pair = meaning.words[own - 1], meanings["adj"][offset].words[other - 1]
                if all(w in known for w in pair):
                    opposites.add(pair)
    examples = []
    every = {w for words in common.values() for w in words}
    for table in meanings.values():
        for meaning in table.values():
            for word in every.intersection(meaning.words):
                examples += [
                    (word, e[0].upper() + e[1:] + ("" if e[-1] in ".!?" else "."))
                    for e in meaning.examples
                    if 12 < len(e) < 90 and e.isascii() and re.search(rf"\b{word}\b", e)
                ]
    return {
        "nouns": common["noun"], "verbs": common["verb"], "adjectives": common["adj"], "glosses": glosses,
        "opposites": sorted(opposites), "examples": examples,
    }  # fmt: skip
