"""What the engine needs from a family to read pictures: from an RGB image to patches, token ids and positions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """A picture as the vision encoder reads it. pixels float32 [patches, values]; grid in patches (height, width).

    Equal digests mean equal pixels under equal preprocessing.
    """

    pixels: Tensor
    grid: tuple[int, int]
    digest: str


class ImageReader(Protocol):
    """A family's rules for pictures."""

    def prepare(self, image: Image.Image) -> PreparedImage:
        """Resize, normalise and cut into patches; raises BadImage for shapes the model cannot read."""

    def padding_ids(self, start: int) -> list[int]:
        """Token ids to put before a picture whose place is `start`, so that it begins where the model wants it to."""

    def token_ids(self, grid: tuple[int, int]) -> list[int]:
        """The prompt's token ids for such a picture; the vision encoder gives one row for each."""

    def positions(self, grid: tuple[int, int], start: int) -> tuple[Tensor, int]:
        """Rope positions int64 [3, tokens] of a picture that begins at `start`, and the position of what follows."""


def digest_of(pixels: Tensor, grid: tuple[int, int]) -> str:
    """Content hash of prepared pixels."""
    hasher = hashlib.blake2b(f"{grid}".encode(), digest_size=16)
    hasher.update(pixels.contiguous().numpy().tobytes())
    return hasher.hexdigest()


def to_patches(image: Image.Image, patch: int, mean: Tensor, std: Tensor, rescale: float) -> Tensor:
    """Normalised patches in raster order, channel-major inside: float32 [rows * columns, 3 * patch * patch]."""
    width, height = image.size
    raw = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(height, width, 3)
    pixels = (raw.permute(2, 0, 1).float() * rescale - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    grid = pixels.view(3, height // patch, patch, width // patch, patch)
    return grid.permute(1, 3, 0, 2, 4).reshape(-1, 3 * patch * patch)
