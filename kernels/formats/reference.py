"""Decoding of MXFP4, MXFP8 and block-FP8 weights to float32, in plain torch. Knows bytes, not files.

e2m1: sign, 2 exponent bits, 1 mantissa bit; magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6.
e4m3: the "fn" variant, no infinity, largest value 448. e8m0: byte b means 2^(b-127), byte 255 is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

MX_GROUP = 32
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
# Both values of a packed byte at once: entry b holds the bits of (low nibble, high nibble), so one look-up gives two.
_E2M1_PAIRS = torch.stack([_E2M1.repeat(16), _E2M1.repeat_interleave(16)], dim=-1).view(torch.int64).flatten()


def e8m0_to_float32(scale: Tensor) -> Tensor:
    """Decode e8m0 bytes (uint8 or float8_e8m0fnu, any shape) to float32 of the same shape; 255 becomes NaN.

    The exponent byte is placed where float32 keeps its own; 2^-127 is a float32 subnormal.
    """
    byte = scale.view(torch.uint8).to(torch.int32)
    bits = torch.where(byte == 0, 1 << 22, byte << 23)
    return torch.where(byte == 255, torch.nan, bits.view(torch.float32))


def unpack_e2m1(packed: Tensor) -> Tensor:
    """Two e2m1 codes per byte (uint8 or int8 [..., n]) to float32 [..., 2n]; the low nibble is the even column."""
    codes = packed.view(torch.uint8).to(torch.int32)
    pairs = _E2M1_PAIRS.to(packed.device).index_select(0, codes.flatten())
    return pairs.view(codes.shape).view(torch.float32)


def dequantize_mxfp4(packed: Tensor, scale: Tensor) -> Tensor:
    """MXFP4 to float32, exactly: value = e2m1 * 2^(scale - 127).

    packed: uint8 or int8 [..., n/2]; scale: e8m0 or uint8 [..., n/32], one per 32 columns. Returns [..., n].
    """
    values = unpack_e2m1(packed)
    grouped = values.unflatten(-1, (-1, MX_GROUP))
    return grouped.mul_(e8m0_to_float32(scale).unsqueeze(-1)).flatten(-2)


def dequantize_fp8(code: Tensor, scale: Tensor, block: tuple[int, int]) -> Tensor:
    """Block-FP8 to float32: value = e4m3 * scale of its block.

    code: float8_e4m3fn [..., rows, columns]; scale: float32, bfloat16, e8m0 or uint8 (read as e8m0)
    [..., ceil(rows / block[0]), ceil(columns / block[1])]. Blocks at the lower and right edge may be partial.
    MXFP8 is the case block = (1, 32). Returns float32 [..., rows, columns].
    """
    rows, columns = code.shape[-2:]
    grid = e8m0_to_float32(scale) if scale.dtype in (torch.uint8, torch.float8_e8m0fnu) else scale.float()
    if block[0] > 1:
        grid = grid.repeat_interleave(block[0], -2)[..., :rows, :]
    values = code.float()
    if columns % block[1] == 0:
        return values.unflatten(-1, (-1, block[1])).mul_(grid.unsqueeze(-1)).flatten(-2)
    return values.mul_(grid.repeat_interleave(block[1], -1)[..., :columns])
