"""Vision encoder of DeepSeek-V4-Flash-Vision-Exp: ViT with two-dimensional rope, 3 x 3 patches projected to one token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model.norm import RmsNorm
from engine.model.spec import RopeVision
from engine.model.weights import Weights
from engine.vision.span_layout import END, NEWLINE, START, span_of
from kernels.rope import rotate_half_split
from kernels.swiglu import swiglu


class _Biased:
    """Linear layer with bias."""

    def __init__(self, weights: Weights, outputs: int, inputs: int) -> None:
        self.weight, self.bias = weights.matrix("weight", outputs, inputs), weights.vector("bias", outputs)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias.to(x.dtype))


class RopeVisionBlock:
    """Pre-norm transformer block with full attention and SwiGLU."""

    def __init__(self, spec: RopeVision, weights: Weights) -> None:
        self.heads = spec.heads
        self.norm1 = RmsNorm(weights, "norm1", spec.width, spec.norm_eps)
        self.norm2 = RmsNorm(weights, "norm2", spec.width, spec.norm_eps)
        self.qkv = _Biased(weights.scope("qkv"), 3 * spec.width, spec.width)
        self.output = _Biased(weights.scope("output"), spec.width, spec.width)
        self.gate_up = weights.matrix("gate_up", 2 * spec.mlp_width, spec.width)
        self.down = weights.matrix("down", spec.width, spec.mlp_width)

    def __call__(self, x: Tensor, angles: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(1)
        q, k = rotate_half_split(q, angles), rotate_half_split(k, angles)
        heads = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(*heads)[0]
        x = x + self.output(mixed.transpose(0, 1).flatten(1))
        return x + F.linear(swiglu(F.linear(self.norm2(x), self.gate_up)), self.down)


def axial_angles(grid: tuple[int, int], width: int, theta: float) -> Tensor:
    """cos + i sin per patch in raster order, complex64 [patches, width / 2]: the first half turns by row, then by column."""
    axis = width // 2
    speed = theta ** (-torch.arange(0, axis, 2, dtype=torch.float64) / axis)
    row = torch.arange(grid[0]).repeat_interleave(grid[1])
    column = torch.arange(grid[1]).repeat(grid[0])
    angles = torch.cat([place.unsqueeze(1) * speed for place in (row, column)], dim=-1).float()
    return torch.polar(torch.ones_like(angles), angles)


class RopeVisionEncoder:
    """Patch projection, blocks, aligner; rows in the order of the prompt's tokens, marks included."""

    def __init__(self, spec: RopeVision, hidden: int, weights: Weights) -> None:
        self.spec = spec
        self.patch = _Biased(weights.scope("patch"), spec.width, 3 * spec.patch**2)
        self.blocks = [RopeVisionBlock(spec, weights.scope(f"blocks.{i}")) for i in range(spec.layers)]
        self.norm = RmsNorm(weights, "norm", spec.width, spec.norm_eps)
        aligner = weights.scope("aligner")
        self.align = _Biased(aligner.scope("hidden"), hidden, spec.width * spec.downsample**2)
        self.project = _Biased(aligner.scope("output"), hidden, hidden)
        self.marks = {
            kind: weights.vector(name, hidden) for kind, name in ((START, "start"), (NEWLINE, "newline"), (END, "end"))
        }

    @torch.inference_mode()
    def features(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        """One row per square of patches, raster order: [rows * columns, hidden]. Missing patches of a square are zero."""
        spec, side = self.spec, self.spec.downsample
        angles = axial_angles(grid, spec.width // spec.heads, spec.theta).to(pixels.device)
        x = self.patch(pixels.to(self.patch.weight.dtype))
        for block in self.blocks:
            x = block(x, angles)
        image = self.norm(x).view(*grid, -1).permute(2, 0, 1)
        image = F.pad(image, (0, -grid[1] % side, 0, -grid[0] % side))
        squares = F.unfold(image.unsqueeze(0), side, stride=side)[0].T  # channel by channel inside a square
        return self.project(F.gelu(self.align(squares)))

    @torch.inference_mode()
    def __call__(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        """Rows of the span's tokens; padding tokens get zeros, the language model knows their vector."""
        features = self.features(pixels, grid)
        span = span_of(*(-(-n // self.spec.downsample) for n in grid))
        chosen = torch.tensor(span.features, device=features.device)
        rows = features[chosen.clamp(min=0)].masked_fill((chosen < 0).unsqueeze(1), 0.0)
        kinds = torch.tensor(span.kinds, device=features.device)
        for kind, vector in self.marks.items():
            rows[kinds == kind] = vector.to(rows.dtype)
        return rows
