"""Reads the parts of a GGUF file that the teacher needs: metadata, F32, Q4_1 and Q8_0 tensors, the tokenizer.

Layout: magic, version, tensor count, metadata count; key-value pairs; tensor records; data, aligned.
Q4_1: 32 values in 20 bytes: fp16 scale, fp16 minimum, 16 bytes (low nibbles first). Q8_0: 34 bytes: fp16 scale, 32 int8.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_BLOCK_BYTES = {0: ("F32", 1, 4), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}
_CONTROL = 3  # token type of marks


class Gguf(NamedTuple):
    """Metadata and decoded tensors."""

    fields: dict[str, Any]
    tensors: dict[str, Tensor]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def scalar(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        self.at += size
        return struct.unpack_from("<" + form, self.data, self.at - size)[0]

    def text(self) -> str:
        size = self.scalar("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            return [self.value(inner) for _ in range(count)]
        return self.scalar(_SCALARS[kind])


def decode(raw: np.ndarray, kind: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes of a tensor to float32."""
    if kind == "F32":
        return torch.from_numpy(raw.view(np.float32).copy()).reshape(shape)
    blocks = raw.reshape(-1, 20 if kind == "Q4_1" else 34)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == "Q8_0":
        return torch.from_numpy(blocks[:, 2:].copy().view(np.int8) * scale).reshape(shape)
    least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)
    return torch.from_numpy(codes * scale + least).reshape(shape)


def read_gguf(path: Path) -> Gguf:
    """Everything; shapes come out as [rows, columns]."""
    data = path.read_bytes()
    assert data[:4] == b"GGUF", f"{path} is not a GGUF file"
    reader = _Reader(data)
    reader.at = 8
    tensor_count, field_count = reader.scalar("Q"), reader.scalar("Q")
    fields = {}
    for _ in range(field_count):
        key = reader.text()
        fields[key] = reader.value(reader.scalar("I"))
    records = []
    for _ in range(tensor_count):
        name = reader.text()
        size = tuple(reader.scalar("Q") for _ in range(reader.scalar("I")))[::-1]
        records.append((name, size, reader.scalar("I"), reader.scalar("Q")))
    aligned = fields.get("general.alignment", 32)
    start = -(-reader.at // aligned) * aligned
    tensors = {}
    for name, size, kind, offset in records:
        label, values, width = _BLOCK_BYTES[kind]
        count = int(np.prod(size)) // values * width
        raw = np.frombuffer(data, np.uint8, count, start + offset)
        tensors[name] = decode(raw, label, size)
    return Gguf(fields, tensors)


def tokenizer_of(fields: dict[str, Any]) -> Tokenizer:
    """The byte-level BPE of the file; digits are single tokens."""
    tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    pairs = [(a, b) for a, b in (m.split(" ") for m in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    marks = [t for t, k in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if k == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(m, special=True) for m in marks])
    return tokenizer
