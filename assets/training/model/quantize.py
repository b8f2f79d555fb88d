"""MXFP4 and MXFP8 rounding of weights: in training as a straight-through step, in the exporter as bytes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

GROUP = 32  # columns that share a scale
_E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_E4M3_MAX = 448.0


class Packed(NamedTuple):
    """Codes and e8m0 scale bytes as a checkpoint stores them."""

    codes: Tensor
    scale: Tensor


def _nearest_e2m1(x: Tensor) -> Tensor:
    """Nearest value of the format for magnitudes; the grid is finer near zero."""
    step = torch.where(x < 2, 0.5, torch.where(x < 4, 1.0, 2.0))
    return (torch.round(x / step) * step).clamp(max=6.0)


def _fitted(w: Tensor) -> tuple[Tensor, Tensor]:
    """Magnitudes in e2m1 [..., groups, 32] and exponents [..., groups, 1]: of two exponents the one with less error."""
    groups = w.float().unflatten(-1, (-1, GROUP))
    top = groups.abs().amax(-1, keepdim=True).clamp_min(2.0**-120)
    low = torch.floor(torch.log2(top)) - 2
    tried = []
    for exponent in (low, low + 1):
        scale = torch.exp2(exponent)
        codes = _nearest_e2m1((groups.abs() / scale).clamp(max=6.0))
        error = (codes * scale - groups.abs()).square().sum(-1, keepdim=True)
        tried.append((codes, exponent, error))
    (codes, exponent, error), (other, raised, other_error) = tried
    better = other_error < error
    return torch.where(better, other, codes), torch.where(better, raised, exponent)


def round_mxfp4(w: Tensor) -> Tensor:
    """The value that MXFP4 stores for each weight; last dimension a multiple of 32."""
    codes, exponent = _fitted(w)
    signed = torch.copysign(codes, w.unflatten(-1, (-1, GROUP)).float())
    return (signed * torch.exp2(exponent)).flatten(-2).to(w.dtype)


def straight_through_mxfp4(w: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded forwards, identity backwards. bfloat16 holds every value of the format."""
    return (w + (round_mxfp4(w.detach()) - w.detach())).to(dtype)


def pack_mxfp4(w: Tensor) -> Packed:
    """[rows, columns] -> codes int8 [rows, columns / 2] (low nibble = even column), scale e8m0 [rows, columns / 32]."""
    codes, exponent = _fitted(w)
    number = torch.searchsorted(_E2M1, codes.contiguous()).to(torch.uint8)
    number = (number + 8 * torch.signbit(w.float().unflatten(-1, (-1, GROUP)))).to(torch.uint8).flatten(-2)
    packed = number[..., 0::2] | (number[..., 1::2] << 4)
    scale = (exponent.squeeze(-1) + 127).to(torch.uint8)
    return Packed(packed.view(torch.int8), scale.view(torch.float8_e8m0fnu))


def pack_mxfp8(w: Tensor) -> Packed:
    """[rows, columns] -> codes e4m3 [rows, columns], scale uint8 [rows, columns / 32]."""
    groups = w.float().unflatten(-1, (-1, GROUP))
    top = groups.abs().amax(-1, keepdim=True).clamp_min(2.0**-100)
    exponent = torch.ceil(torch.log2(top / _E4M3_MAX))
    codes = (groups / torch.exp2(exponent)).clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn)
    return Packed(codes.flatten(-2), (exponent.squeeze(-1) + 127).to(torch.uint8))
