"""A matrix as it lies on disk: plain, block FP8, MXFP8 or MXFP4, possibly a slice of a fused tensor. Decodes to any dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from engine.checkpoint.shard import Entry
from engine.errors import BadCheckpoint
from kernels.experts import MxFp4Matrix
from kernels.formats import dequantize_fp8, dequantize_mxfp4

Format = Literal["plain", "integer", "fp8", "mxfp4"]
_PLAIN = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_BYTE_SCALES = (torch.uint8, torch.float8_e8m0fnu)


@dataclass(frozen=True)
class StoredTensor:
    """Codes and scales of one logical tensor. `shape` is the logical shape of the part that is meant."""

    codes: Entry
    scale: Entry | None
    format: Format
    shape: tuple[int, ...]
    block: tuple[int, int] = (1, 1)
    expert: int | None = None  # index into the leading dimension of a fused tensor
    rows: tuple[int, int] | None = None  # row range of a fused tensor

    @property
    def nbytes(self) -> int:
        """Bytes on disk of this part, scales included."""
        share = 1.0
        if self.expert is not None:
            share /= self.codes.shape[0]
        if self.rows is not None:
            share *= (self.rows[1] - self.rows[0]) / self.codes.shape[1 if self.expert is not None else 0]
        return round(share * (self.codes.nbytes + (self.scale.nbytes if self.scale else 0)))

    @property
    def exact_in_bfloat16(self) -> bool:
        """Whether bfloat16 holds every value: it is stored so, or as short codes with power-of-two scales."""
        if self.format == "plain":
            return self.codes.dtype == torch.bfloat16
        return self.scale is not None and self.scale.dtype in _BYTE_SCALES

    def holds_bfloat16(self) -> bool:
        """Whether this is a float32 tensor of which every value is a bfloat16; reads it."""
        if self.format != "plain" or self.codes.dtype != torch.float32:
            return False
        bits = self._part(self.codes.view(), 1).reshape(-1).view(torch.int32)
        return not any(bool((part & 0xFFFF).any()) for part in bits.split(1 << 20))

    def decode(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        """The values as a tensor of its own; raises BadCheckpoint for a NaN scale or code."""
        codes = self._part(self.codes.view(), 1)
        if self.format == "integer":
            return codes.to(device, torch.int64, copy=True)
        if self.format == "plain":
            return codes.to(device, dtype, copy=True)
        assert self.scale is not None
        scale = self._part(self.scale.view(), self.block[0])
        self._check_scale(scale)
        codes, scale = codes.to(device), scale.to(device)
        if self.format == "mxfp4":
            return dequantize_mxfp4(codes.flatten(1) if codes.dim() == 3 else codes, scale).to(dtype)
        if bool(((codes.view(torch.uint8) & 0x7F) == 0x7F).any()):
            raise BadCheckpoint(f"The {self.codes} holds values that are not numbers; download the file again.")
        return dequantize_fp8(codes, scale, self.block).to(dtype)

    def packed(self) -> MxFp4Matrix:
        """MXFP4 bytes as they lie in the mapped file, rows contiguous; raises BadCheckpoint for a NaN scale."""
        assert self.format == "mxfp4" and self.scale is not None
        codes, scale = self._part(self.codes.view(), 1), self._part(self.scale.view(), self.block[0])
        self._check_scale(scale)
        codes = codes.flatten(1) if codes.dim() == 3 else codes
        return MxFp4Matrix(codes.view(torch.uint8), scale.view(torch.uint8))

    def release(self) -> None:
        """Give the mapped memory back to the system."""
        self.codes.release()
        if self.scale is not None:
            self.scale.release()

    def select(self, expert: int | None, rows: tuple[int, int] | None) -> StoredTensor:
        """A part of a fused tensor [experts, rows, columns]."""
        shape = self.shape
        if expert is not None:
            shape = shape[1:]
        if rows is not None:
            shape = (rows[1] - rows[0], *shape[1:])
        return replace(self, shape=shape, expert=expert, rows=rows)

    def _part(self, tensor: Tensor, row_block: int) -> Tensor:
        if self.expert is not None:
            tensor = tensor[self.expert]
        if self.rows is not None:
            first, last = self.rows
            if first % row_block:
                raise BadCheckpoint(
                    f"The fused {self.codes} cannot be split at row {first}: its blocks have {row_block} rows."
                )
            tensor = tensor[first // row_block : -(-last // row_block)]
        return tensor

    def _check_scale(self, scale: Tensor) -> None:
        if scale.dtype in _BYTE_SCALES:
            broken = scale.numel() > 0 and int(scale.view(torch.uint8).max()) == 255
        else:
            broken = not bool(scale.isfinite().all())
        if broken:
            raise BadCheckpoint(f"The scale {self.scale} holds a value that is not a number; download the file again.")


def _scale_names(name: str) -> Iterator[str]:
    base = name.removesuffix(".weight")
    yield from (f"{base}.scale", f"{base}.weight_scale_inv", f"{base}.weight_scale", f"{base}.qscale_weight")
    yield from (f"{base}_scale_inv", f"{base}_scale")


def find_stored(
    entries: Mapping[str, Entry], name: str, fp8_block: tuple[int, int] | None
) -> tuple[StoredTensor, list[str]] | None:
    """The tensor called `name` with its scales, and the names used up; None if there is no such tensor.

    `name` without `.weight` also finds `name.weight` and gpt-oss style `name_blocks` + `name_scales`.
    `fp8_block` is what the config says; the scale grid decides when it says otherwise.
    """
    for candidate in (name, f"{name}.weight"):
        if candidate in entries:
            return _resolve(entries, candidate, fp8_block)
    blocks = f"{name.removesuffix('.weight')}_blocks"
    if blocks in entries:
        scales = blocks.removesuffix("_blocks") + "_scales"
        if scales not in entries:
            raise BadCheckpoint(
                f"The {entries[blocks]} has no scales: {scales} is missing; download the checkpoint again."
            )
        codes, scale = entries[blocks], entries[scales]
        if (
            codes.dtype != torch.uint8
            or codes.shape[-1:] != (16,)
            or scale.shape != codes.shape[:-1]
            or not scale.shape
        ):
            raise BadCheckpoint(
                f"The {codes} is not MXFP4 in blocks of 32: {list(codes.shape)} with scales {list(scale.shape)}."
            )
        shape = (*codes.shape[:-2], codes.shape[-2] * 32)
        return StoredTensor(codes, scale, "mxfp4", shape, (1, 32)), [blocks, scales]
    return None


def _resolve(
    entries: Mapping[str, Entry], name: str, fp8_block: tuple[int, int] | None
) -> tuple[StoredTensor, list[str]]:
    codes = entries[name]
    if codes.dtype in _PLAIN:
        return StoredTensor(codes, None, "plain", codes.shape), [name]
    scale_name = next((n for n in _scale_names(name) if n in entries), None)
    if scale_name is None:
        if codes.dtype in (torch.int64, torch.int32):
            return StoredTensor(codes, None, "integer", codes.shape), [name]
        raise BadCheckpoint(
            f"The quantized {codes} ({codes.dtype}) has no scale tensor; download the checkpoint again."
        )
    scale = entries[scale_name]
    if codes.dtype in (torch.int8, torch.uint8):
        whole = bool(codes.shape) and codes.shape[-1] % 16 == 0
        if not whole or scale.dtype not in _BYTE_SCALES or scale.shape != (*codes.shape[:-1], codes.shape[-1] // 16):
            raise BadCheckpoint(
                f"The {codes} is not MXFP4: {list(codes.shape)} bytes with scales {list(scale.shape)} of type {scale.dtype}."
            )
        return StoredTensor(codes, scale, "mxfp4", (*codes.shape[:-1], codes.shape[-1] * 2), (1, 32)), [
            name,
            scale_name,
        ]
    if codes.dtype != torch.float8_e4m3fn:
        raise BadCheckpoint(f"The {codes} has element type {codes.dtype}, which no weight may have.")
    if scale.dtype not in (*_PLAIN, *_BYTE_SCALES):
        raise BadCheckpoint(f"The scale {scale} has element type {scale.dtype}, which no scale may have.")
    block = _fp8_block(codes, scale, fp8_block)
    return StoredTensor(codes, scale, "fp8", codes.shape, block), [name, scale_name]


def _fp8_block(codes: Entry, scale: Entry, declared: tuple[int, int] | None) -> tuple[int, int]:
    """Block size whose grid, with partial blocks at the edges, is the scale's shape."""
    rows, columns = codes.shape[-2:] if len(codes.shape) > 1 else (0, 0)
    if rows and columns and scale.shape[:-2] == codes.shape[:-2] and len(scale.shape) == len(codes.shape):
        grid = scale.shape[-2:]
        even = (-(-rows // grid[0]), -(-columns // grid[1])) if min(grid) > 0 else (0, 0)
        for block in (declared, (1, 32), (128, 128), (32, 32), (1, 128), even):
            if block and min(block) > 0 and grid == (-(-rows // block[0]), -(-columns // block[1])):
                return block
    raise BadCheckpoint(
        f"The scales of {codes} have shape {list(scale.shape)}, which fits no block size of {list(codes.shape)}."
    )
