"""The vision tower of the twin. Several pictures of any shape lie in one row of patches and see only themselves.

Patches come in merge order (the four patches of a merged one are neighbours), so merging is a reshape.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assets.training.model.layers import EPS, attention_weights, linear, matrix, rms_norm
from assets.training.shape import Shape, preprocessor_config

PATCH, MERGE = 16, 2
PATCH_VALUES = 3 * PATCH * PATCH


class Affine(nn.Module):
    """Weight and bias; convolutions keep their kernel dimensions."""

    def __init__(self, *size: int) -> None:
        super().__init__()
        self.weight, self.bias = matrix(*size), nn.Parameter(torch.zeros(size[0]))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Norm(nn.Module):
    """Layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), x.shape[-1:], self.weight, self.bias, EPS).to(x.dtype)


class Block(nn.Module):
    """Pre-norm transformer block with full attention inside a picture."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.vision_hidden
        self.heads = shape.vision_heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.query, self.key, self.value, self.output = (Affine(width, width) for _ in range(4))
        self.up, self.down = Affine(shape.vision_width, width), Affine(width, shape.vision_width)

    def forward(self, x: Tensor, same: Tensor) -> Tensor:
        seen = self.norm1(x)
        q, k, v = (p(seen).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.query, self.key, self.value))
        # Whole products: on heads this narrow with a mask they should move less than a fused kernel's recomputation costs.
        mixed = torch.matmul(attention_weights(q, k, same).to(v.dtype), v)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Merger(nn.Module):
    """2 x 2 patches to one row of the language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        merged = shape.vision_hidden * MERGE**2
        self.norm = nn.Parameter(torch.ones(shape.vision_hidden))
        self.merge, self.project = Affine(merged, shape.vision_hidden, MERGE, MERGE), Affine(shape.hidden, merged, 1, 1)
        self.newline = matrix(shape.hidden, std=shape.hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = rms_norm(x, self.norm).unflatten(1, (-1, MERGE**2)).flatten(2)
        kernel = self.merge.weight.permute(0, 2, 3, 1).flatten(1)
        return linear(F.gelu(linear(x, kernel, self.merge.bias)), self.project.weight.flatten(1), self.project.bias)


class Sight(nn.Module):
    """patches uint8 [P, N, 768]; picture int [P, N], -1 = padding; place int [P, N, 4] (row, column, rows, columns)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.side = shape.position_side // PATCH
        self.patch = Affine(shape.vision_hidden, 3, PATCH, PATCH)
        self.positions = matrix(self.side**2 + 1, shape.vision_hidden)  # row 0 is a class token's, unused
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.vision_layers)])
        self.merger = Merger(shape)
        numbers = preprocessor_config()
        for name in ("image_mean", "image_std"):
            values = torch.tensor(numbers[name]).repeat_interleave(PATCH**2)
            self.register_buffer(name, values, persistent=False)

    def placed(self, place: Tensor) -> Tensor:
        """Bilinear look-up in the learned grid, scale (n + 0.1) / side as the family resizes it.

        As a product with the weights of all places: gathering rows would add up its gradient row by row.
        """
        corners = torch.arange(self.side, device=place.device)
        weights = []
        for axis in (0, 1):
            scale = self.side / (place[..., 2 + axis].float().clamp_min(1) + 0.1)
            at = ((place[..., axis].float() + 0.5) * scale - 0.5).clamp(0, self.side - 1)
            weights.append((1 - (at.unsqueeze(-1) - corners).abs()).clamp_min(0))
        both = weights[0].unsqueeze(-1) * weights[1].unsqueeze(-2)
        return torch.matmul(both.flatten(-2), self.positions[1:])


def embed_patches(sight: Sight, patches: Tensor, place: Tensor, dtype: torch.dtype) -> Tensor:
    """[P, N, width]: pixels and places."""
    pixels = (patches.float() / 255 - sight.image_mean) / sight.image_std
    return linear(pixels.to(dtype), sight.patch.weight.flatten(1), sight.patch.bias) + sight.placed(place).to(dtype)


def vision_block(block: Block, x: Tensor, same: Tensor) -> Tensor:
    return block(x, same)


def merge_patches(merger: Merger, x: Tensor) -> Tensor:
    """Rows of the language model, [P * N / 4 + 1, H]; the last one is the newline vector."""
    return torch.cat([merger(x).flatten(0, 1), merger.newline.to(x.dtype).unsqueeze(0)])
