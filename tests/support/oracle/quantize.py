"""Writes and reads the number formats of the checkpoints, with torch, without transformers.

e2m1   4 bits: sign, 2 exponent, 1 mantissa; magnitudes 0 .5 1 1.5 2 3 4 6
e4m3   8 bits ("fn"): bias 7, no infinity, 0x7F and 0xFF are NaN, largest 448
e8m0   8 bits: byte b is 2**(b-127), 255 is NaN
In every layout the value is ``code * scale``, although some files call the scale ``weight_scale_inv``.
``tests.support.formats`` holds vectors that are computed independently of this file.
"""

from __future__ import annotations

import torch
from torch import Tensor

Block = tuple[int, int]
MX_GROUP = 32
E2M1_MAX = 6.0
E4M3_MAX = 448.0
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def e8m0_to_float(scale: Tensor) -> Tensor:
    """e8m0 bytes (``uint8`` or ``float8_e8m0fnu``, any shape) to float32; 255 gives NaN."""
    byte = scale.view(torch.uint8).to(torch.int32)
    return torch.ldexp(torch.ones(byte.shape), byte - 127).masked_fill(byte == 255, float("nan"))


def covering_scale(amax: Tensor, code_max: float) -> Tensor:
    """Smallest power of two that brings ``amax`` down to ``code_max``: ``uint8`` e8m0 bytes, same shape."""
    mantissa, exponent = torch.frexp(amax.clamp(min=2.0**-100) / code_max)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
    return (exponent + 127).clamp(1, 254).to(torch.uint8)


def quantize_mxfp4(w: Tensor) -> tuple[Tensor, Tensor]:
    """``[out, in]`` float32 to (int8 ``[out, in/2]``, low nibble = even column; e8m0 ``[out, in/32]``)."""
    rows, cols = w.shape
    groups = w.reshape(rows, cols // MX_GROUP, MX_GROUP)
    scale = covering_scale(groups.abs().amax(-1), E2M1_MAX)
    scaled = groups / e8m0_to_float(scale)[..., None]
    magnitude = torch.bucketize(scaled.abs().contiguous(), (_E2M1[1:] + _E2M1[:-1]) / 2)
    codes = (magnitude + 8 * torch.signbit(scaled)).to(torch.uint8).reshape(rows, cols)
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).view(torch.int8)
    return packed, scale.view(torch.float8_e8m0fnu)


def dequantize_mxfp4(packed: Tensor, scale: Tensor) -> Tensor:
    """(int8 ``[out, in/2]``, e8m0 ``[out, in/32]``) to float32 ``[out, in]``; exact."""
    byte = packed.view(torch.uint8)
    codes = torch.stack([byte & 15, byte >> 4], dim=-1).flatten(-2).long()
    return torch.cat([_E2M1, -_E2M1])[codes] * e8m0_to_float(scale).repeat_interleave(MX_GROUP, -1)


def expand_blocks(grid: Tensor, shape: torch.Size, block: Block) -> Tensor:
    """``[..., ceil(out/block), ceil(in/block)]`` to one value per element ``[..., out, in]``; cuts partial blocks."""
    tall = grid.repeat_interleave(block[0], -2)[..., : shape[-2], :]
    return tall.repeat_interleave(block[1], -1)[..., : shape[-1]]


def _block_amax(w: Tensor, block: Block) -> Tensor:
    *lead, rows, cols = w.shape
    high, wide = -(-rows // block[0]), -(-cols // block[1])
    padded = torch.zeros(*lead, high * block[0], wide * block[1])
    padded[..., :rows, :cols] = w.abs()
    return padded.view(*lead, high, block[0], wide, block[1]).amax((-3, -1))


def quantize_fp8(w: Tensor, block: Block, scale_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``[..., out, in]`` float32 to (e4m3, block scales in ``scale_dtype``: float32, float8_e8m0fnu or uint8)."""
    amax = _block_amax(w, block)
    if scale_dtype == torch.float32:
        stored = scale = (amax / E4M3_MAX).clamp(min=2.0**-100)
    else:
        byte = covering_scale(amax, E4M3_MAX)
        stored, scale = byte.view(scale_dtype), e8m0_to_float(byte)
    code = (w / expand_blocks(scale, w.shape, block)).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return code, stored


def dequantize_fp8(code: Tensor, scale: Tensor, block: Block) -> Tensor:
    """(e4m3 ``[..., out, in]``, block scales) to float32, same shape."""
    grid = scale if scale.dtype == torch.float32 else e8m0_to_float(scale)
    return code.float() * expand_blocks(grid, code.shape, block)
