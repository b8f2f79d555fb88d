"""Vision encoders: from patches to embedding rows of the language model."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.linear import FusedLinear
from engine.model.norm import LayerNorm, RmsNorm
from engine.model.spec import HyVision, ModelSpec
from engine.model.vision_rope import RopeVisionEncoder
from engine.model.weights import Weights
from kernels.linear import linear


class VisionEncoder(Protocol):
    """pixels float32 [patches, values] of one picture with its grid (height, width) -> rows [tokens, hidden]."""

    def __call__(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor: ...


class HyVisionBlock:
    """Pre-norm transformer block with full attention and GELU."""

    def __init__(self, spec: HyVision, weights: Weights) -> None:
        width = spec.width
        self.heads = spec.heads
        self.norm1 = LayerNorm(weights, "norm1", width, spec.norm_eps)
        self.norm2 = LayerNorm(weights, "norm2", width, spec.norm_eps)
        names = ("query", "key", "value")
        self.qkv = FusedLinear(weights, width, **{f"{n}.weight": width for n in names})
        self.qkv_bias = torch.cat([weights.vector(f"{n}.bias", width) for n in names])
        self.output = weights.matrix("output.weight", width, width)
        self.output_bias = weights.vector("output.bias", width)
        self.up, self.up_bias = (
            weights.matrix("up.weight", spec.mlp_width, width),
            weights.vector("up.bias", spec.mlp_width),
        )
        self.down, self.down_bias = (
            weights.matrix("down.weight", width, spec.mlp_width),
            weights.vector("down.bias", width),
        )

    def __call__(self, x: Tensor) -> Tensor:
        qkv = linear(self.norm1(x), self.qkv.weight) + self.qkv_bias.to(x.dtype)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        mixed = F.scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0))[0]
        x = x + F.linear(mixed.transpose(0, 1).flatten(1), self.output, self.output_bias.to(x.dtype))
        hidden = F.gelu(F.linear(self.norm2(x), self.up, self.up_bias.to(x.dtype)))
        return x + F.linear(hidden, self.down, self.down_bias.to(x.dtype))


class HyVisionEncoder:
    """Patch projection plus resized position grid, blocks, 2x2 merger, newline vector behind every merged row."""

    def __init__(self, spec: HyVision, hidden: int, weights: Weights) -> None:
        self.spec, self.side = spec, spec.max_side_pixels // spec.patch
        width, merged = spec.width, spec.width * spec.merge**2
        self.patch = weights.matrix("patch.weight", width, 3, spec.patch, spec.patch).flatten(1)
        self.patch_bias = weights.vector("patch.bias", width)
        # Row 0 of the table belongs to a class token that this model does not use.
        self.positions = weights.vector("positions", self.side**2 + 1, width)[1:]
        self.blocks = [HyVisionBlock(spec, weights.scope(f"blocks.{i}")) for i in range(spec.layers)]
        merger = weights.scope("merger")
        self.norm = RmsNorm(merger, "norm", width, spec.merger_eps)
        self.merge = merger.matrix("merge.weight", merged, width, spec.merge, spec.merge).flatten(1)
        self.merge_bias = merger.vector("merge.bias", merged)
        self.project = merger.matrix("project.weight", hidden, merged, 1, 1).flatten(1)
        self.project_bias = merger.vector("project.bias", hidden)
        self.newline = merger.vector("newline", hidden)

    def _grid_positions(self, grid: tuple[int, int]) -> Tensor:
        """Learned positions resized to the grid: bilinear with scale (n + 0.1) / side, as the model was trained."""
        table = self.positions.view(1, self.side, self.side, -1).permute(0, 3, 1, 2)
        scale = tuple((n + 0.1) / self.side for n in grid)
        resized = F.interpolate(table, scale_factor=scale, mode="bilinear", align_corners=False)
        return resized.permute(0, 2, 3, 1).flatten(0, 2)

    @torch.inference_mode()
    def __call__(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        dtype = self.patch.dtype
        x = F.linear(pixels.to(dtype), self.patch, self.patch_bias.to(dtype)) + self._grid_positions(grid).to(dtype)
        for block in self.blocks:
            x = block(x)
        # The stride of the merging convolution is its size, so it is a product over squares of patches.
        size = self.spec.merge
        squares = self.norm(x).view(grid[0] // size, size, grid[1] // size, size, -1).permute(0, 2, 4, 1, 3).flatten(2)
        merged = F.gelu(F.linear(squares, self.merge, self.merge_bias.to(dtype)))
        rows = F.linear(merged, self.project, self.project_bias.to(dtype))
        newline = self.newline.to(dtype).expand(rows.shape[0], 1, -1)
        return torch.cat([rows, newline], dim=1).flatten(0, 1)


def vision_encoder(spec: ModelSpec, weights: Weights) -> VisionEncoder | None:
    """The encoder of a model that sees, else None."""
    if spec.vision is None:
        return None
    if isinstance(spec.vision, HyVision):
        return HyVisionEncoder(spec.vision, spec.hidden, weights.scope("vision"))
    return RopeVisionEncoder(spec.vision, spec.hidden, weights.scope("vision"))
