"""How DeepSeek-V4-Flash-Vision-Exp writes a picture as tokens. Knows numbers only, no pixels and no weights.

No public reference implementation exists. These points come from secondary descriptions alone; all of them are decided
here or in the lines of engine/families/deepseek_v4.py that name this file:
  - the order of the tokens, the padding, and that the grid starts at a multiple of the smaller compression ratio
  - every id behind the vocabulary counts as an image token for the router, padding included; the router's `bias_vl`
    replaces `bias`, and in hash layers it replaces the table
  - tokens from START to END see each other in the sliding window's branch; compressed entries stay causal
  - names and element types of the vision tensors
"""

from __future__ import annotations

from typing import NamedTuple

START, PAD, IMAGE, NEWLINE, END = range(5)  # a token's id is the vocabulary's size plus one of these
ALIGNMENT = 4


class Span(NamedTuple):
    """Tokens from START to END: their kinds, and for each the raster number of its feature, -1 for other kinds."""

    kinds: list[int]
    features: list[int]


def padding_before(start: int) -> int:
    """PADs to put at position `start` so that START is the last token of a group and the grid begins a new one."""
    return (-start - 1) % ALIGNMENT


def span_of(rows: int, columns: int) -> Span:
    """Two rows at a time, column by column, so that a group of four tokens is a square of the picture.

    Behind the last column each row has a NEWLINE. A missing second row is PAD; PADs fill up the last group.
    """
    kinds, features = [START], [-1]
    for upper in range(0, rows, 2):
        for column in range(columns + 1):
            for row in (upper, upper + 1):
                inside = row < rows
                kind = (NEWLINE if column == columns else IMAGE) if inside else PAD
                kinds.append(kind)
                features.append(row * columns + column if kind == IMAGE else -1)
    fill = (1 - len(kinds)) % ALIGNMENT
    kinds += [PAD] * fill + [END]
    features += [-1] * (fill + 1)
    return Span(kinds, features)


def span_tokens(rows: int, columns: int) -> int:
    """Length of the span, padding before START not counted."""
    grid = (rows + rows % 2) * (columns + 1)
    return 2 + grid + -grid % ALIGNMENT
