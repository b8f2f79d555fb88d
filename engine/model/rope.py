"""Angles of the rotary embedding: frequencies with or without YaRN, one or three position rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from engine.model.spec import Rope, Yarn
from kernels.rope import rotate_half_split, rotate_interleaved


@lru_cache(maxsize=32)
def frequencies(rope: Rope) -> Tensor:
    """Angle per position of each channel pair, float32 [width / 2]: theta^(-2i/width), stretched by YaRN if asked."""
    exponent = torch.arange(0, rope.width, 2, dtype=torch.float32) / rope.width
    base = 1.0 / rope.theta**exponent
    return base if rope.yarn is None else _stretched(base, rope, rope.yarn)


def _stretched(base: Tensor, rope: Rope, yarn: Yarn) -> Tensor:
    """YaRN: fast pairs keep their frequency, slow pairs are divided by the factor, a ramp lies between."""

    def pair_turning(times: float) -> float:
        turns = yarn.original_tokens / (times * 2 * math.pi)
        return rope.width * math.log(turns) / (2 * math.log(rope.theta))

    low = max(math.floor(pair_turning(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_turning(yarn.beta_slow)), rope.width - 1)
    pairs = torch.arange(rope.width // 2, dtype=torch.float32)
    slow = ((pairs - low) / max(high - low, 1e-3)).clamp(0, 1)
    return base / yarn.factor * slow + base * (1 - slow)


def rotation(rope: Rope, positions: Tensor) -> Tensor:
    """cos + i sin of every pair: positions int [3, N] (time, height, width rows) -> complex64 [N, width / 2].

    Without sections the time row counts. With sections (T, H, W), frequency i follows the height row if i mod 3 = 1
    and i < 3 H, the width row if i mod 3 = 2 and i < 3 W, else the time row (interleaved mrope).
    """
    if rope.sections is None:
        angles = positions[0].float().unsqueeze(1) * _held(frequencies, rope, positions.device)
    else:
        angles = positions[_held(_axes, rope, positions.device)].float().T * _held(frequencies, rope, positions.device)
    return torch.polar(torch.ones_like(angles), angles)


@lru_cache(maxsize=128)
def _held(make: Callable[[Rope], Tensor | list[int]], rope: Rope, device: torch.device) -> Tensor:
    """What `make` gives as a tensor on the device, copied there once: a copy would make every step wait."""
    return torch.as_tensor(make(rope)).to(device)


@lru_cache(maxsize=32)
def _axes(rope: Rope) -> list[int]:
    assert rope.sections is not None
    return [i % 3 if i % 3 and i < 3 * rope.sections[i % 3] else 0 for i in range(rope.width // 2)]


def rotate(rope: Rope, x: Tensor, angles: Tensor, first: int = 0) -> Tensor:
    """Rotate channels first .. first + rope.width of x [N, heads, D] by `rotation(...)` in the style of the model."""
    return (rotate_interleaved if rope.style == "interleaved" else rotate_half_split)(x, angles, first)
