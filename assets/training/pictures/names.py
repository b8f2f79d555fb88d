"""Names of the 300 everyday things, their synonyms, and how icon sets call them. The table is names.txt beside this file."""

from __future__ import annotations

from pathlib import Path

from assets.training.phrases import article


def _read() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """(name -> synonyms with the name first, name -> icon names)."""
    synonyms: dict[str, tuple[str, ...]] = {}
    icons: dict[str, tuple[str, ...]] = {}
    for line in Path(__file__).with_name("names.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        called, _, others = rest.partition("|")
        also = tuple(o.strip() for o in others.split(",") if o.strip())
        synonyms[name] = (name, *also)
        icons[name] = tuple(called.split()) or (name.replace(" ", "-"),)
    return synonyms, icons


THINGS, ICON_NAMES = _read()
# Things that take no article.
SAID = {
    name: name
    for name in (
        "fire", "rice", "bread", "cheese", "honey", "scissors", "glasses", "jeans", "chopsticks", "popcorn", "sushi",
        "spaghetti", "bacon", "butter", "ice", "money", "cherries", "grapes", "french fries", "headphones", "socks",
        "gloves", "shorts", "footprints", "fog", "lightning", "corn", "maize", "broccoli", "garlic", "lettuce", "salt", "soap",
        "meat", "milk", "toilet paper", "nail polish", "bowling", "tennis", "dna", "chocolate", "coffee", "tea", "beer", "wine",
        "thread", "santa", "mail", "love", "music", "confetti", "cutlery", "saturn", "candy",
    )
} | {"earth": "the earth", "world": "the world"}  # fmt: skip


def said(name: str) -> str:
    """With its article, unless it needs none."""
    several = name.endswith("s") and not name.endswith(("ss", "us", "is"))
    return SAID.get(name) or (name if several else article(name))


def is_same(one: str, other: str) -> bool:
    """Whether both are names of the same thing."""
    return other in THINGS.get(one, ()) or one in THINGS.get(other, ())
