"""DeepSeek-V4-Flash-Vision-Exp in plain torch: image preprocessing, token layout, vision tower, aligner, visibility.

Written from the published description; shares no code with the engine or with transformers, which has no such class.
What is uncertain, because only secondary sources describe it (all agree on the names and formulas used here):
  - dtypes on disk: matrices and biases bf16, norm weights, image vectors and ``bias_vl`` float32
  - every id >= vocab_size, leading PADs included, counts as an image token for ``bias_vl``
  - ``bias_vl`` replaces ``bias`` in the choice of experts, and in hash layers replaces the table
  - tokens from START to END see each other in the window branch; compressed entries stay causal

Names on disk: ``vision.patch_embed.proj.{weight,bias}``, ``vision.blocks.N.{norm1,norm2}.weight``,
``vision.blocks.N.attn.{wqkv,wo}.{weight,bias}``, ``vision.blocks.N.mlp.{w1,w2}.weight``, ``vision.norm.weight``,
``aligner.{w1,w2}.{weight,bias}``, ``image_{start,pad,newline,end}``, ``layers.N.ffn.gate.bias_vl``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

START, PAD, IMAGE, NEWLINE, END = range(5)  # an image token's id is vocab_size plus one of these
VECTOR_NAMES = {START: "image_start", PAD: "image_pad", NEWLINE: "image_newline", END: "image_end"}
ALIGNMENT = 4  # the grid starts at a multiple of the smaller compression ratio
GRAY = (127, 127, 127)
NORM_EPS = 1e-6


@dataclass(frozen=True)
class VisionConfig:
    """The flat ``vision_*`` fields of config.json."""

    n_layers: int = 32
    dim: int = 1024
    n_heads: int = 16
    inter_dim: int = 2816
    patch_size: int = 14
    rope_theta: float = 10000.0
    downsample_ratio: int = 3
    max_n_token: int = 384
    min_pixels: int = 147456
    max_wh_ratio: float = 8

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> VisionConfig:
        return cls(**{name: config[f"vision_{name}"] for name in cls.__dataclass_fields__})

    def fields(self) -> dict[str, Any]:
        """As they stand in config.json."""
        return {f"vision_{name}": getattr(self, name) for name in self.__dataclass_fields__}


# ---- preprocessing and token layout


class Grid(NamedTuple):
    rows: int
    cols: int


def merged_grid(height: int, width: int, config: VisionConfig) -> Grid:
    """Grid of language-model tokens of an image of ``height x width`` pixels."""
    step = config.patch_size * config.downsample_ratio
    return Grid(math.ceil(height / step), math.ceil(width / step))


def span_tokens(grid: Grid) -> int:
    """Tokens from START to END: rows rounded up to pairs, each with a NEWLINE column, filled to whole groups of 4."""
    pairs, row = (grid.rows + 1) // 2, grid.cols + 1
    return 2 + 2 * pairs * row + 2 * (pairs * row % 2)


def _shrunk(height: int, width: int, budget: int, config: VisionConfig) -> tuple[int, int]:
    """Largest size of this aspect ratio whose grid, with an even number of rows, has ``rows*(cols+1)+2 <= budget``."""
    step, ratio = config.patch_size * config.downsample_ratio, height / width
    cols = math.sqrt((budget - 2) / ratio + 0.25) - 0.5
    rows = cols * ratio
    if cols < 1:
        return (budget - 2) // 2 // 2 * 2 * step, step
    if rows < 2:
        return 2 * step, ((budget - 2) // 2 - 1) * step
    zoom = min(math.floor(cols) * step / width, math.floor(rows) // 2 * 2 * step / height)
    patch = config.patch_size
    return math.floor(height * zoom / patch) * patch, math.floor(width * zoom / patch) * patch


def target_size(height: int, width: int, config: VisionConfig) -> tuple[int, int]:
    """Pixel size (height, width) that an image of ``height x width`` is brought to."""
    width = min(width, int(height * config.max_wh_ratio))
    if height * width < config.min_pixels:
        zoom = math.sqrt(config.min_pixels / (height * width))
        height, width = int(height * zoom), int(width * zoom)
    patch = config.patch_size
    best = math.ceil(height / patch) * patch, math.ceil(width / patch) * patch
    budget = config.max_n_token - (ALIGNMENT - 1)
    while span_tokens(merged_grid(*best, config)) > budget:
        best = _shrunk(height, width, budget, config)
        budget -= 1
        assert budget >= 8, "image cannot be brought into the token budget"
    return best


def preprocess(image: Image.Image, config: VisionConfig) -> tuple[Tensor, Grid]:
    """Patches float32 ``[rows*cols, 3*p*p]`` in raster order (channel-major inside) in [-1, 1], and their grid."""
    image = image.convert("RGB")
    height, width = target_size(image.height, image.width, config)
    if image.width >= config.max_wh_ratio * image.height:
        image = image.resize((width, height))
    else:
        image = ImageOps.pad(image, (width, height), color=GRAY)
    p = config.patch_size
    grid = Grid(height // p, width // p)
    pixels = (torch.from_numpy(np.array(image)).float() / 255 - 0.5) / 0.5
    patches = pixels.view(grid.rows, p, grid.cols, p, 3).permute(0, 2, 4, 1, 3)
    return patches.reshape(grid.rows * grid.cols, 3 * p * p), grid


def image_block(grid: Grid, start: int) -> tuple[Tensor, Tensor]:
    """Token kinds of one image that begins at sequence position ``start``, and which feature each IMAGE takes.

    PADs up to a multiple of 4 minus one, START, then pairs of rows column by column (NEWLINE is the last column; a
    missing second row is PAD), PADs to a whole group of 4, END. Returns int64 ``[tokens]`` and ``[rows*cols]``.
    """
    kinds = [PAD] * (ALIGNMENT - 1 - start % ALIGNMENT) + [START]
    order: list[int] = []
    for top in range(0, grid.rows, 2):
        for col in range(grid.cols + 1):
            for row in (top, top + 1):
                if row >= grid.rows:
                    kinds.append(PAD)
                elif col == grid.cols:
                    kinds.append(NEWLINE)
                else:
                    kinds.append(IMAGE)
                    order.append(row * grid.cols + col)
    kinds += [PAD] * (span_tokens(grid) - 2 - 2 * ((grid.rows + 1) // 2) * (grid.cols + 1)) + [END]
    return torch.tensor(kinds), torch.tensor(order)


def window_visibility(ids: Tensor, vocab_size: int, window: int) -> Tensor:
    """bool ``[T, T]`` (query, key) of the window branch: causal window, plus START..END of the query's own image."""
    position = torch.arange(len(ids))
    distance = position[:, None] - position[None, :]
    visible = (distance >= 0) & (distance < window)
    starts = (ids == vocab_size + START).nonzero().flatten().tolist()
    ends = (ids == vocab_size + END).nonzero().flatten().tolist()
    for first, last in zip(starts, ends, strict=True):
        visible[first : last + 1, first : last + 1] = True
    return visible


# ---- vision tower and aligner; ``weights`` are float32 by on-disk name


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS)


def _linear(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _angles(grid: Grid, head_dim: int, theta: float) -> Tensor:
    """``[patches, head_dim/2]``: the first half of the angles comes from the row, the second from the column."""
    axis = head_dim // 2
    frequency = theta ** (-torch.arange(0, axis, 2).double() / axis)
    rows = torch.arange(grid.rows).double().repeat_interleave(grid.cols)
    cols = torch.arange(grid.cols).double().repeat(grid.rows)
    return torch.cat([rows[:, None] * frequency, cols[:, None] * frequency], dim=-1)


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Half-split rotation of ``x [patches, heads, head_dim]``."""
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def vision_tower(weights: Mapping[str, Tensor], patches: Tensor, grid: Grid, config: VisionConfig) -> Tensor:
    """Patches of one image ``[rows*cols, 3*p*p]`` to ``[rows*cols, dim]``."""
    head_dim = config.dim // config.n_heads
    angles = _angles(grid, head_dim, config.rope_theta)
    x = _linear(patches, weights, "vision.patch_embed.proj")
    for n in range(config.n_layers):
        block = f"vision.blocks.{n}"
        qkv = _linear(_rms(x, weights[f"{block}.norm1.weight"]), weights, f"{block}.attn.wqkv")
        q, k, v = (t.unflatten(-1, (config.n_heads, head_dim)) for t in qkv.chunk(3, dim=-1))
        scores = torch.einsum("qhd,khd->hqk", _rotate(q, angles), _rotate(k, angles)) * head_dim**-0.5
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
        x = x + _linear(mixed, weights, f"{block}.attn.wo")
        gate, up = _linear(_rms(x, weights[f"{block}.norm2.weight"]), weights, f"{block}.mlp.w1").chunk(2, dim=-1)
        x = x + _linear(gate * torch.sigmoid(gate) * up, weights, f"{block}.mlp.w2")
    return _rms(x, weights["vision.norm.weight"])


def aligner(weights: Mapping[str, Tensor], x: Tensor, grid: Grid, config: VisionConfig) -> Tensor:
    """``[rows*cols, dim]`` to language-model features ``[ceil(rows/r)*ceil(cols/r), H]``, raster order.

    The grid is padded with zeros to multiples of r; a feature reads its r x r patches channel by channel.
    """
    r = config.downsample_ratio
    rows, cols = math.ceil(grid.rows / r), math.ceil(grid.cols / r)
    padded = torch.zeros(rows * r, cols * r, config.dim)
    padded[: grid.rows, : grid.cols] = x.view(grid.rows, grid.cols, config.dim)
    merged = padded.view(rows, r, cols, r, config.dim).permute(0, 2, 4, 1, 3).reshape(rows * cols, -1)
    hidden = _linear(merged, weights, "aligner.w1")
    return _linear(hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2))), weights, "aligner.w2")


def image_features(weights: Mapping[str, Tensor], patches: Tensor, grid: Grid, config: VisionConfig) -> Tensor:
    """Tower and aligner of one image."""
    return aligner(weights, vision_tower(weights, patches, grid, config), grid, config)


def tensor_shapes(config: VisionConfig, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shape of every vision tensor by on-disk name (``bias_vl`` is not one of them)."""
    dim, inter = config.dim, config.inter_dim
    shapes: dict[str, tuple[int, ...]] = {
        "vision.patch_embed.proj.weight": (dim, 3 * config.patch_size**2),
        "vision.patch_embed.proj.bias": (dim,),
        "vision.norm.weight": (dim,),
        "aligner.w1.weight": (hidden, dim * config.downsample_ratio**2),
        "aligner.w1.bias": (hidden,),
        "aligner.w2.weight": (hidden, hidden),
        "aligner.w2.bias": (hidden,),
        **dict.fromkeys(VECTOR_NAMES.values(), (hidden,)),
    }
    for n in range(config.n_layers):
        block = f"vision.blocks.{n}"
        shapes |= {
            f"{block}.norm1.weight": (dim,),
            f"{block}.attn.wqkv.weight": (3 * dim, dim),
            f"{block}.attn.wqkv.bias": (3 * dim,),
            f"{block}.attn.wo.weight": (dim, dim),
            f"{block}.attn.wo.bias": (dim,),
            f"{block}.norm2.weight": (dim,),
            f"{block}.mlp.w1.weight": (2 * inter, dim),
            f"{block}.mlp.w2.weight": (dim, inter),
        }
    return shapes


def is_float32(name: str) -> bool:
    """True for the vision tensors that are stored in float32."""
    return "norm" in name or name.startswith("image_") or name.endswith("bias_vl")
