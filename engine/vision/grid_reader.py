"""Pictures of Hy4: keep the shape, fit a pixel budget, one token per merged patch plus one at the end of each row."""

from __future__ import annotations

import math
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from engine.errors import BadCheckpoint, BadImage
from engine.model.spec import HyVision
from engine.vision.reader import PreparedImage, digest_of, to_patches

MAX_ASPECT = 200
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def _wrong(key: str, value: object) -> BadCheckpoint:
    return BadCheckpoint(f"{key} in preprocessor_config.json is {value!r}, which is no usable value.")


def _count(key: str, value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise _wrong(key, value)
    return value


def _three(key: str, value: object, least: float = -math.inf, most: float = math.inf) -> list[float]:
    """Three numbers, one per colour."""
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise _wrong(key, value)
    if not all(type(v) in (int, float) and math.isfinite(v) and least <= v <= most for v in value):
        raise _wrong(key, value)
    return [float(v) for v in value]


class GridReader:
    """Reads preprocessor_config.json: `size` {shortest_edge, longest_edge} are the least and most pixels,
    `image_mean`, `image_std`, `rescale_factor`, and optionally `pad_to_square` [r, g, b]: centre the picture on a
    square of that colour first, for models that know squares only."""

    def __init__(self, vision: HyVision, image_token: int, preprocessor: dict[str, Any]) -> None:
        self.vision, self.image_token = vision, image_token
        size = preprocessor.get("size") or {}
        if not isinstance(size, dict):
            raise _wrong("size", size)
        self.least_pixels = _count("size", size.get("shortest_edge") or preprocessor.get("min_pixels") or 512 * 512)
        self.most_pixels = _count("size", size.get("longest_edge") or preprocessor.get("max_pixels") or 2048 * 2048)
        self.mean = torch.tensor(_three("image_mean", preprocessor.get("image_mean") or _CLIP_MEAN))
        self.std = torch.tensor(_three("image_std", preprocessor.get("image_std") or _CLIP_STD, least=1e-6))
        self.rescale = _three("rescale_factor", [preprocessor.get("rescale_factor") or 1 / 255] * 3, least=1e-9)[0]
        colour = preprocessor.get("pad_to_square")
        self.square_colour = (
            None if colour is None else tuple(round(v) for v in _three("pad_to_square", colour, 0, 255))
        )
        for key, value in (("patch_size", vision.patch), ("merge_size", vision.merge)):
            if preprocessor.get(key, value) != value:
                raise BadCheckpoint(
                    f"preprocessor_config.json says {key} {preprocessor[key]}, config.json says {value}."
                )

    def prepare(self, image: Image.Image) -> PreparedImage:
        if self.square_colour is not None and image.width != image.height:
            side = max(image.size)
            square = Image.new("RGB", (side, side), self.square_colour)
            square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
            image = square
        height, width = self._fit(image.height, image.width)
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        pixels = to_patches(resized, self.vision.patch, self.mean, self.std, self.rescale)
        grid = (height // self.vision.patch, width // self.vision.patch)
        return PreparedImage(pixels, grid, digest_of(pixels, grid))

    def _fit(self, height: int, width: int) -> tuple[int, int]:
        """Nearest multiples of a merged patch, scaled so that the area lies within the budget."""
        if max(height, width) > MAX_ASPECT * min(height, width):
            raise BadImage(
                f"A picture of {width} x {height} pixels is too narrow; the longer side may be {MAX_ASPECT} times the shorter."
            )
        unit = self.vision.patch * self.vision.merge
        fitted = round(height / unit) * unit, round(width / unit) * unit
        area = fitted[0] * fitted[1]
        if area > self.most_pixels:
            shrink = math.sqrt(height * width / self.most_pixels)
            return tuple(max(unit, math.floor(n / shrink / unit) * unit) for n in (height, width))  # type: ignore[return-value]
        if area < self.least_pixels:
            grow = math.sqrt(self.least_pixels / (height * width))
            return tuple(math.ceil(n * grow / unit) * unit for n in (height, width))  # type: ignore[return-value]
        return fitted

    def _merged(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of tokens, the newline column included."""
        return grid[0] // self.vision.merge, grid[1] // self.vision.merge + 1

    def padding_ids(self, start: int) -> list[int]:
        return []

    def token_ids(self, grid: tuple[int, int]) -> list[int]:
        rows, columns = self._merged(grid)
        return [self.image_token] * (rows * columns)

    def positions(self, grid: tuple[int, int], start: int) -> tuple[Tensor, int]:
        rows, columns = self._merged(grid)
        row = torch.arange(rows).repeat_interleave(columns)
        column = torch.arange(columns).repeat(rows)
        return torch.stack([torch.zeros_like(row), row, column]) + start, start + max(rows, columns)
