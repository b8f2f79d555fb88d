"""Conversations as training data, and how they become rows of tokens and patches.

The prompt form is the chat template's: <|bos|> (<|system|> text <|eos|>) then per turn <|user|> pictures text <|eos|>
<|assistant|> answer <|eos|>.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer

from assets.training.model.sight import PATCH, PATCH_VALUES
from assets.training.model.twin import TokenRows
from assets.training.shape import ASSISTANT, BOS, EOS, IMAGE, MOST_PIXELS, PAD, SYSTEM, USER, Shape, preprocessor_config
from engine.vision.grid_reader import GridReader

ROW_PATCHES = MOST_PIXELS // 256  # the largest picture fills a patch row
ANSWER_WEIGHT, QUESTION_WEIGHT = 10, 2  # tenths


class Turn(NamedTuple):
    """One question with its pictures and the answer."""

    question: str
    answer: str
    pictures: tuple[Image.Image, ...] = ()


@dataclass(frozen=True)
class Document:
    """One conversation."""

    turns: tuple[Turn, ...]
    system: str = ""


class Patches(NamedTuple):
    """A picture in merge order: uint8 [n, 768], and place uint8 [n, 4] (row, column, rows, columns)."""

    pixels: np.ndarray
    place: np.ndarray
    grid: tuple[int, int]


class PictureCutter(GridReader):
    """The family's own resize rule and positions, giving whole bytes instead of normalised numbers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.vision(), IMAGE, preprocessor_config())

    def __call__(self, picture: Image.Image) -> Patches:
        height, width = self._fit(picture.height, picture.width)
        raw = np.asarray(picture.convert("RGB").resize((width, height), Image.Resampling.BICUBIC), np.uint8)
        grid = (height // PATCH, width // PATCH)
        order, place = merge_order(*grid)
        cut = raw.reshape(grid[0], PATCH, grid[1], PATCH, 3).transpose(0, 2, 4, 1, 3).reshape(-1, PATCH_VALUES)
        return Patches(cut[order], place, grid)


@lru_cache(maxsize=1024)
def merge_order(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Raster numbers of the patches so that the four of a merged one follow each other, and their places."""
    raster = np.arange(rows * columns).reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).reshape(-1)
    sizes = np.full_like(raster, rows), np.full_like(raster, columns)
    return raster, np.stack([raster // columns, raster % columns, *sizes], 1).astype(np.uint8)


@dataclass
class Encoded:
    """A conversation in tokens. `pictures`: (index of the first picture token, patches)."""

    ids: list[int]
    weight: list[int]
    positions: list[tuple[int, int, int]]
    pictures: list[tuple[int, Patches]]


class Encoder:
    """Documents to tokens; remembers the tokens of short texts, which templates repeat."""

    def __init__(self, tokenizer: Tokenizer, shape: Shape) -> None:
        self.tokenizer, self.cut = tokenizer, PictureCutter(shape)
        self._known: dict[str, list[int]] = {}

    def tokens(self, text: str) -> list[int]:
        if text not in self._known:
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            if len(self._known) > 200_000:
                self._known.clear()
            self._known[text] = ids
        return self._known[text]

    def encode(self, document: Document) -> Encoded:
        """Tokens, weights of predicting the NEXT token, rope positions, pictures."""
        made = Encoded([], [], [], [])
        self._add(made, [BOS], 0)
        if document.system:
            self._add(made, [SYSTEM, *self.tokens(document.system), EOS], 0)
        for turn in document.turns:
            self._add(made, [USER], 0)
            for picture in turn.pictures:
                self._add_picture(made, self.cut(picture))
            self._add(made, [*self.tokens(turn.question), EOS], QUESTION_WEIGHT)
            self._add(made, [ASSISTANT], 0)
            self._add(made, [*self.tokens(turn.answer), EOS], ANSWER_WEIGHT)
        made.weight = [*made.weight[1:], 0]
        return made

    def _add(self, made: Encoded, ids: list[int], weight: int) -> None:
        start = max(made.positions[-1]) + 1 if made.positions else 0
        if made.ids and made.ids[-1] == IMAGE:
            start = self._after_picture
        made.ids += ids
        made.weight += [weight] * len(ids)
        made.positions += [(p, p, p) for p in range(start, start + len(ids))]

    def _add_picture(self, made: Encoded, patches: Patches) -> None:
        start = self._after_picture if made.ids[-1] == IMAGE else made.positions[-1][0] + 1
        rows, self._after_picture = self.cut.positions(patches.grid, start)
        made.pictures.append((len(made.ids), patches))
        ids = self.cut.token_ids(patches.grid)
        made.ids += ids
        made.weight += [0] * len(ids)
        made.positions += [(a, b, c) for a, b, c in rows.T.tolist()]

    _after_picture = 0


class Packer:
    """Fills rows of tokens with conversations, and patch rows with their pictures."""

    def __init__(self, num_rows: int, row_tokens: int, patch_rows: int) -> None:
        self.size, self.patch_rows = (num_rows, row_tokens), patch_rows
        self.ids = np.full(self.size, PAD, np.int16)
        self.weight = np.zeros(self.size, np.uint8)
        self.positions = np.zeros((3, *self.size), np.int16)
        self.document = np.full(self.size, -1, np.int16)
        self.slot = np.full(self.size, -1, np.int32)
        self.patches = np.zeros((patch_rows, ROW_PATCHES, 768), np.uint8)
        self.picture = np.full((patch_rows, ROW_PATCHES), -1, np.int16)
        self.place = np.ones((patch_rows, ROW_PATCHES, 4), np.uint8)
        self.used = [0] * num_rows  # tokens per row
        self.filled = [0] * patch_rows  # patches per patch row
        self._documents = 0

    def room(self, row: int) -> int:
        return self.size[1] - self.used[row]

    def patches_left(self) -> int:
        return sum(ROW_PATCHES - n for n in self.filled)

    def add(self, row: int, made: Encoded) -> bool:
        """Put a conversation behind what the row holds; False if it or its pictures do not fit."""
        count = len(made.ids)
        if count > self.room(row):
            return False
        rows = self._reserve([len(p.pixels) for _, p in made.pictures])
        if rows is None:
            return False
        at = slice(self.used[row], self.used[row] + count)
        self.ids[row, at], self.weight[row, at] = made.ids, made.weight
        self.positions[:, row, at] = np.array(made.positions).T
        self.document[row, at] = self._documents
        for number, ((start, patches), (patch_row, first)) in enumerate(zip(made.pictures, rows, strict=True)):
            self._place(row, self.used[row] + start, patches, patch_row, first, number)
        self.used[row] += count
        self._documents += 1
        return True

    def _reserve(self, sizes: Sequence[int]) -> list[tuple[int, int]] | None:
        """First patch row with room for each picture, or None."""
        filled, found = list(self.filled), []
        for size in sizes:
            row = next((i for i, n in enumerate(filled) if n + size <= ROW_PATCHES), None)
            if row is None:
                return None
            found.append((row, filled[row]))
            filled[row] += size
        self.filled = filled
        return found

    def _place(self, row: int, start: int, patches: Patches, patch_row: int, first: int, number: int) -> None:
        count = len(patches.pixels)
        at = slice(first, first + count)
        self.patches[patch_row, at], self.place[patch_row, at] = patches.pixels, patches.place
        self.picture[patch_row, at] = first  # unique inside its patch row
        rows, columns = patches.grid[0] // 2, patches.grid[1] // 2
        slots = np.full((rows, columns + 1), self.patch_rows * ROW_PATCHES // 4, np.int32)
        slots[:, :-1] = (patch_row * ROW_PATCHES + first) // 4 + np.arange(rows * columns).reshape(rows, columns)
        self.slot[row, start : start + slots.size] = slots.reshape(-1)

    def finish(self) -> TokenRows:
        """The batch as tensors in the small types that travel between processes."""
        arrays = (
            self.ids, self.weight, self.positions, self.document, self.slot, self.patches, self.picture, self.place,
        )  # fmt: skip
        return TokenRows(*(torch.from_numpy(a) for a in arrays))


def pack_all(documents: Iterable[Encoded], row_tokens: int) -> TokenRows:
    """A fixed set of conversations, as many rows as they need; those that are too long are left out."""
    kept = [d for d in documents if len(d.ids) <= row_tokens]
    rows: list[int] = []
    for made in kept:
        if not rows or rows[-1] + len(made.ids) > row_tokens:
            rows.append(0)
        rows[-1] += len(made.ids)
    packer = Packer(len(rows), row_tokens, max(1, sum(len(d.pictures) for d in kept)))
    row = 0
    for made in kept:
        while not packer.add(row, made):
            row += 1
    return packer.finish()
