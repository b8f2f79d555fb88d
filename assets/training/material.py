"""What the makers of training data draw from: fonts, words, icons. Written by the sources stage into one folder.

    fonts/*.ttf   words.json   icons.npz   sources.json
Everything is optional: what is missing is left out, and a font that Pillow brings is always there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFont

HELD_FONTS = ("Roboto", "LiberationSerif-Italic", "DejaVuSansCondensed-Oblique")
HELD_STYLE = "noto"  # an icon style that no training picture shows
BUILT_IN_FONT = ""


class Icons(NamedTuple):
    """images uint8 [names, styles, side, side, 4]; have bool [names, styles]."""

    images: np.ndarray
    have: np.ndarray
    names: list[str]
    styles: list[str]


@dataclass(frozen=True)
class Material:
    """`held_*` belongs to the evaluation."""

    fonts: list[str] = field(default_factory=lambda: [BUILT_IN_FONT])
    held_fonts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # for reading and spelling, 3 to 8 letters
    held_words: list[str] = field(default_factory=list)
    glosses: dict[str, str] = field(default_factory=dict)
    opposites: list[tuple[str, str]] = field(default_factory=list)
    examples: list[tuple[str, str]] = field(default_factory=list)
    icons: Icons | None = None
    held_icons: Icons | None = None  # the style that training never shows
    nouns: list[str] = field(default_factory=list)  # most frequent first

    @staticmethod
    def load(folder: Path) -> Material:
        """Read what is there."""
        paths = sorted(str(p) for p in (folder / "fonts").glob("*.ttf"))
        held = [p for p in paths if any(mark in Path(p).name for mark in HELD_FONTS)]
        fonts = [p for p in paths if p not in held] or [BUILT_IN_FONT]
        file = folder / "words.json"
        words = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        short = [w for w in words.get("nouns", FEW_WORDS) if 3 <= len(w) <= 8]
        held_words = short[5::10]
        return Material(
            fonts=fonts,
            held_fonts=held,
            words=sorted(set(short) - set(held_words)),
            held_words=held_words,
            glosses=words.get("glosses", {}),
            opposites=[(a, b) for a, b in words.get("opposites", [])],
            examples=[(a, b) for a, b in words.get("examples", [])],
            icons=_read_icons(folder / "icons.npz", held=False),
            held_icons=_read_icons(folder / "icons.npz", held=True),
            nouns=words.get("nouns", []),
        )


def _read_icons(path: Path, held: bool) -> Icons | None:
    """The icons of the training styles, or those of the held-out style; things without any are left out."""
    if not path.exists():
        return None
    stored = np.load(path, allow_pickle=False)
    styles = stored["styles"].tolist()
    columns = [i for i, style in enumerate(styles) if (style == HELD_STYLE) == held]
    rows = stored["have"][:, columns].any(1)
    if not rows.any():
        return None
    names = [n for n, kept in zip(stored["names"].tolist(), rows, strict=True) if kept]
    images, have = stored["images"][rows][:, columns], stored["have"][rows][:, columns]
    return Icons(images, have, names, [styles[i] for i in columns])


@lru_cache(maxsize=512)
def font_of(path: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font at a size in pixels."""
    return ImageFont.load_default(size) if path == BUILT_IN_FONT else ImageFont.truetype(path, size)


def icon_image(icons: Icons, name: int, style: int) -> Image.Image:
    return Image.fromarray(icons.images[name, style], "RGBA")


FEW_WORDS = [
    "apple", "bird", "boat", "book", "bread", "bridge", "camera", "candle", "castle", "chair", "cloud",
    "coffee", "desk", "door", "dream", "engine", "field", "fire", "fish", "flower", "forest", "friend",
    "garden", "glass", "gold", "grass", "green", "hand", "heart", "horse", "house", "island", "jacket",
    "juice", "kitchen", "lake", "lamp", "leaf", "letter", "light", "lion", "market", "metal", "milk", "money",
    "moon", "morning", "mountain", "music", "night", "ocean", "orange", "paint", "paper", "park", "pencil",
    "piano", "planet", "plant", "queen", "rain", "river", "road", "rocket", "salt", "school", "season",
    "shadow", "ship", "silver", "smile", "snow", "song", "spoon", "spring", "star", "stone", "storm",
    "street", "sugar", "summer", "sun", "table", "tiger", "train", "travel", "tree", "valley", "village",
    "voice", "water", "wheel", "wind", "window", "winter", "wolf", "wood", "world", "year",
]  # fmt: skip
