"""The vision tower of the twin. Several pictures of any shape lie in one row of patches and see only themselves.

Patches come in merge order (the four patches of a merged one are neighbours), so merging is a reshape.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assets.training.model.layers import EPS, linear, matrix, rms_norm
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
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=same.unsqueeze(1))
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

    def _placed(self, place: Tensor) -> Tensor:
        """Bilinear look-up in the learned grid, scale (n + 0.1) / side as the family resizes it."""
        table = self.positions[1:]
        axes = []
        for axis in (0, 1):
            scale = self.side / (place[..., 2 + axis].float().clamp_min(1) + 0.1)
            at = ((place[..., axis].float() + 0.5) * scale - 0.5).clamp_min(0)
            low = at.floor().long().clamp_max(self.side - 1)
            axes.append((low, (low + 1).clamp_max(self.side - 1), (at - low).unsqueeze(-1)))
        (top, bottom, down), (left, right, across) = axes
        upper = table[top * self.side + left] * (1 - across) + table[top * self.side + right] * across
        lower = table[bottom * self.side + left] * (1 - across) + table[bottom * self.side + right] * across
        return upper * (1 - down) + lower * down

    def forward(self, patches: Tensor, picture: Tensor, place: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the language model, [P * N / 4 + 1, H]; the last one is the newline vector."""
        pixels = (patches.float() / 255 - self.image_mean) / self.image_std
        x = linear(pixels.to(dtype), self.patch.weight.flatten(1), self.patch.bias) + self._placed(place).to(dtype)
        same = picture.unsqueeze(1) == picture.unsqueeze(2)
        for block in self.blocks:
            x = block(x, same)
        rows = self.merger(x).flatten(0, 1)
        return torch.cat([rows, self.merger.newline.to(dtype).unsqueeze(0)])
