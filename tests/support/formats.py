"""Number-format vectors computed from the definitions, element by element, in Python floats (float64).

No torch bit trick and no torch float8 type takes part, so these vectors can judge code that uses them.

e2m1   4 bits, sign 1, exponent 2 (bias 1), mantissa 1
e4m3   8 bits, sign 1, exponent 4 (bias 7), mantissa 3; 0x7F and 0xFF are NaN, no infinity
e8m0   8 bits, 2**(b-127), 255 is NaN
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import torch
from torch import Tensor

GROUP = 32
LOSSLESS_LOG2_RATIO = {"all_codes": 14, "no_half": 15}  # largest ratio of two e8m0 scales that one e4m3 block holds


def e2m1_value(code: int) -> float:
    """Value of a 4-bit code; code 8 is minus zero."""
    exponent, mantissa = code >> 1 & 3, code & 1
    magnitude = mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -magnitude if code & 8 else magnitude


def e4m3_value(code: int) -> float:
    """Value of an 8-bit code."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    magnitude = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -magnitude if code & 128 else magnitude


def e8m0_value(code: int) -> float:
    """Value of a scale byte."""
    return math.nan if code == 255 else 2.0 ** (code - 127)


def e2m1_table() -> Tensor:
    """float64 [16]"""
    return torch.tensor([e2m1_value(c) for c in range(16)], dtype=torch.float64)


def e4m3_table() -> Tensor:
    """float64 [256]"""
    return torch.tensor([e4m3_value(c) for c in range(256)], dtype=torch.float64)


def e8m0_table() -> Tensor:
    """float64 [256]; byte 0 is 2**-127, a subnormal of float32."""
    return torch.tensor([e8m0_value(c) for c in range(256)], dtype=torch.float64)


def mxfp4_products() -> Tensor:
    """float64 [256, 16]: value of every (scale byte, code); row 255 is NaN, the largest overflow float32."""
    return torch.tensor([[e8m0_value(s) * e2m1_value(c) for c in range(16)] for s in range(256)], dtype=torch.float64)


class Vector(NamedTuple):
    """Stored tensors and what they mean."""

    code: Tensor
    scale: Tensor
    value: Tensor  # float64


def _as_int8(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def nibble_order() -> tuple[Tensor, Tensor]:
    """(int8 [256], float64 [256, 2]): every byte and its two e2m1 values, even column (low nibble) first."""
    packed = torch.tensor([_as_int8(b) for b in range(256)], dtype=torch.int8)
    values = [[e2m1_value(b & 15), e2m1_value(b >> 4)] for b in range(256)]
    return packed, torch.tensor(values, dtype=torch.float64)


def mxfp4_matrix(rows: int, cols: int, seed: int = 0, scales: range = range(100, 150)) -> Vector:
    """Random MXFP4: int8 ``[rows, cols/2]``, uint8 e8m0 ``[rows, cols/32]``, values ``[rows, cols]``."""
    rng = random.Random(seed)
    codes = [[rng.randrange(16) for _ in range(cols)] for _ in range(rows)]
    scale = [[rng.choice(scales) for _ in range(cols // GROUP)] for _ in range(rows)]
    packed = [[_as_int8(r[2 * i] + 16 * r[2 * i + 1]) for i in range(cols // 2)] for r in codes]
    value = [
        [e2m1_value(c) * e8m0_value(s[i // GROUP]) for i, c in enumerate(r)] for r, s in zip(codes, scale, strict=True)
    ]
    return Vector(
        torch.tensor(packed, dtype=torch.int8),
        torch.tensor(scale, dtype=torch.uint8),
        torch.tensor(value, dtype=torch.float64),
    )


def gpt_oss_blocks(experts: int, rows: int, groups: int, seed: int = 0) -> Vector:
    """The gpt-oss layout: ``_blocks`` uint8 ``[E, rows, G, 16]``, ``_scales`` uint8 ``[E, rows, G]``.

    Values ``[E, rows, G*32]``. Nibble and scale meaning are those of ``mxfp4_matrix``; only the shape differs.
    """
    flat = mxfp4_matrix(experts * rows, groups * GROUP, seed)
    blocks = torch.tensor([[b % 256 for b in row] for row in flat.code.tolist()], dtype=torch.uint8)
    return Vector(
        blocks.reshape(experts, rows, groups, GROUP // 2),
        flat.scale.reshape(experts, rows, groups),
        flat.value.reshape(experts, rows, groups * GROUP),
    )


def fp8_blocks(rows: int, cols: int, block: tuple[int, int] = (128, 128), *, e8m0: bool, seed: int = 0) -> Vector:
    """Random FP8 block matrix, border blocks cut: uint8 e4m3 bytes ``[rows, cols]``, values the same shape.

    Scales ``[ceil(rows/b0), ceil(cols/b1)]`` are uint8 e8m0 bytes or float32. ``block=(1, 32)`` gives MXFP8.
    """
    rng = random.Random(seed)
    finite = [c for c in range(256) if c & 127 != 127]
    high, wide = -(-rows // block[0]), -(-cols // block[1])
    code = [[rng.choice(finite) for _ in range(cols)] for _ in range(rows)]
    if e8m0:
        stored = torch.tensor([[rng.randrange(110, 140) for _ in range(wide)] for _ in range(high)], dtype=torch.uint8)
        scale = [[e8m0_value(b) for b in row] for row in stored.tolist()]
    else:
        stored = torch.tensor([[rng.uniform(1e-4, 3e-2) for _ in range(wide)] for _ in range(high)])
        scale = stored.tolist()  # the float32 values, exactly, as Python floats
    value = [[e4m3_value(c) * scale[i // block[0]][j // block[1]] for j, c in enumerate(r)] for i, r in enumerate(code)]
    return Vector(torch.tensor(code, dtype=torch.uint8), stored, torch.tensor(value, dtype=torch.float64))


def nearest_e4m3(x: float) -> int:
    """Code of the nearest finite e4m3 value, ties to the even mantissa; found by trying all codes."""
    sign = 128 if math.copysign(1.0, x) < 0 else 0
    return sign | min(range(127), key=lambda c: (abs(e4m3_value(c) - abs(x)), c & 1))


def e4m3_rounding() -> tuple[Tensor, Tensor]:
    """(float32 inputs [n], uint8 codes [n]): every value, and each midpoint with its neighbours, up to 448."""
    values = [e4m3_value(c) for c in range(127)]
    middles = [(a + b) / 2 for a, b in zip(values[1:], values[:-1], strict=True)]
    middle = torch.tensor(middles)
    around = [middle, torch.nextafter(middle, torch.tensor(torch.inf)), torch.nextafter(middle, torch.tensor(0.0))]
    positive = torch.cat([torch.tensor(values), *around])
    inputs = torch.cat([positive, -positive])
    return inputs, torch.tensor([nearest_e4m3(x) for x in inputs.tolist()], dtype=torch.uint8)


class Requantized(NamedTuple):
    """MXFP4 rows of two groups and the same rows as e4m3 with one scale; row r has scales 2**0 and 2**-r."""

    packed: Tensor  # int8 [17, 32]
    scale: Tensor  # uint8 e8m0 [17, 2]
    value: Tensor  # float64 [17, 64]
    e4m3: Tensor  # uint8 [17, 64]
    e4m3_scale: Tensor  # uint8 e8m0 [17]: the largest scale / 64, so that 6 becomes 384
    lossless: Tensor  # bool [17]


def mxfp4_as_e4m3(kind: str = "all_codes") -> Requantized:
    """How far two groups may differ before one e4m3 scale loses something; ``kind`` of ``LOSSLESS_LOG2_RATIO``.

    "no_half" leaves out the codes of 0.5 and 1.5, whose lowest mantissa bits are lost first.
    """
    codes = [c for c in range(16) if kind == "all_codes" or c & 7 not in (1, 3)]
    group = (codes * GROUP)[:GROUP]
    row = group + group[::-1]
    packed = [_as_int8(row[2 * i] + 16 * row[2 * i + 1]) for i in range(GROUP)]
    value, e4m3, lossless = [], [], []
    for ratio in range(17):
        values = [e2m1_value(c) * 2.0 ** (0 if i < GROUP else -ratio) for i, c in enumerate(row)]
        encoded = [nearest_e4m3(v * 64) for v in values]
        value.append(values)
        e4m3.append(encoded)
        lossless.append(all(e4m3_value(c) / 64 == v for c, v in zip(encoded, values, strict=True)))
    return Requantized(
        torch.tensor([packed] * 17, dtype=torch.int8),
        torch.tensor([[127, 127 - r] for r in range(17)], dtype=torch.uint8),
        torch.tensor(value, dtype=torch.float64),
        torch.tensor(e4m3, dtype=torch.uint8),
        torch.full((17,), 121, dtype=torch.uint8),
        torch.tensor(lossless),
    )
