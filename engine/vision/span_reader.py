"""Pictures of DeepSeek-V4-Flash-Vision-Exp: keep the shape on a grey ground, fit a token budget, pairs of rows."""

from __future__ import annotations

import math

import torch
from PIL import Image, ImageOps
from torch import Tensor

from engine.errors import BadImage
from engine.model.spec import RopeVision
from engine.vision.reader import PreparedImage, digest_of, to_patches
from engine.vision.span_layout import ALIGNMENT, PAD, padding_before, span_of, span_tokens

_GREY = (127, 127, 127)
_LEAST_TOKENS = 8


class SpanReader:
    """`most_tokens` of one picture, padding included; smaller pictures than `least_pixels` are enlarged."""

    def __init__(self, vision: RopeVision, vocab: int, most_tokens: int, least_pixels: int, widest: float) -> None:
        self.vision, self.vocab = vision, vocab
        self.most_tokens, self.least_pixels, self.widest = most_tokens, least_pixels, widest
        self.unit = vision.patch * vision.downsample  # pixels of one token

    def prepare(self, image: Image.Image) -> PreparedImage:
        height, width = self._fit(image.height, image.width)
        if image.width >= self.widest * image.height:  # too flat to keep its shape
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        else:
            image = ImageOps.pad(image, (width, height), Image.Resampling.BICUBIC, color=_GREY)
        half = torch.full((3,), 0.5)
        pixels = to_patches(image, self.vision.patch, half, half, 1 / 255)
        grid = (height // self.vision.patch, width // self.vision.patch)
        return PreparedImage(pixels, grid, digest_of(pixels, grid))

    def _fit(self, height: int, width: int) -> tuple[int, int]:
        """Pixel size in whole patches whose span stays within the budget."""
        width = min(width, int(height * self.widest))
        if height * width < self.least_pixels:
            grow = math.sqrt(self.least_pixels / (height * width))
            height, width = int(height * grow), int(width * grow)
        patch = self.vision.patch
        fitted = math.ceil(height / patch) * patch, math.ceil(width / patch) * patch
        budget = self.most_tokens - (ALIGNMENT - 1)
        while span_tokens(*self._tokens(*fitted)) > budget:
            if budget < _LEAST_TOKENS:
                raise BadImage(
                    f"A picture of {width} x {height} pixels cannot be brought into the model's token budget."
                )
            fitted = self._shrunk(height, width, budget)
            budget -= 1
        return fitted

    def _shrunk(self, height: int, width: int, budget: int) -> tuple[int, int]:
        """Largest size of this shape with an even number of token rows and rows * (columns + 1) + 2 within the budget."""
        shape, free = height / width, budget - 2
        columns = math.sqrt(free / shape + 0.25) - 0.5  # solves shape * c * (c + 1) = free
        if columns < 1:
            return free // 4 * 2 * self.unit, self.unit
        if columns * shape < 2:
            return 2 * self.unit, (free // 2 - 1) * self.unit
        rows = int(columns * shape) // 2 * 2
        scale = min(int(columns) * self.unit / width, rows * self.unit / height)
        patch = self.vision.patch
        return int(height * scale / patch) * patch, int(width * scale / patch) * patch

    def _tokens(self, height: int, width: int) -> tuple[int, int]:
        return math.ceil(height / self.unit), math.ceil(width / self.unit)

    def _merged(self, grid: tuple[int, int]) -> tuple[int, int]:
        return math.ceil(grid[0] / self.vision.downsample), math.ceil(grid[1] / self.vision.downsample)

    def padding_ids(self, start: int) -> list[int]:
        return [self.vocab + PAD] * padding_before(start)

    def token_ids(self, grid: tuple[int, int]) -> list[int]:
        return [self.vocab + kind for kind in span_of(*self._merged(grid)).kinds]

    def positions(self, grid: tuple[int, int], start: int) -> tuple[Tensor, int]:
        count = span_tokens(*self._merged(grid))
        return torch.arange(start, start + count).expand(3, -1), start + count
