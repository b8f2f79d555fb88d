"""Writes and reads safetensors directories (shards and index) under original tensor names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from .quantize import Block, dequantize_fp8, dequantize_mxfp4, quantize_fp8, quantize_mxfp4

INDEX_FILE = "model.safetensors.index.json"
_SCALE_ENDINGS = (".scale", ".weight_scale_inv", ".weight_scale", "_proj_scale")


def write_json(path: Path, content: object) -> None:
    """Pretty JSON in insertion order, so that equal content is equal bytes."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


class CheckpointWriter:
    """Collects tensors by on-disk name. Every ``put`` returns the float32 value that the stored bytes stand for."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def _store(self, name: str, tensor: Tensor) -> None:
        assert name not in self.tensors, name
        self.tensors[name] = tensor.detach().clone().contiguous()

    def put(self, name: str, value: Tensor, dtype: torch.dtype) -> Tensor:
        """Store unquantized in ``dtype``."""
        stored = value.to(dtype)
        self._store(name, stored)
        return stored.float() if stored.is_floating_point() else stored

    def put_fp8(self, weight: str, scale: str, value: Tensor, block: Block, scale_dtype: torch.dtype) -> Tensor:
        """Store ``value [..., out, in]`` as e4m3 under ``weight`` and its block scales under ``scale``."""
        code, stored = quantize_fp8(value, block, scale_dtype)
        self._store(weight, code)
        self._store(scale, stored)
        return dequantize_fp8(code, stored, block)

    def put_mxfp4(self, module: str, value: Tensor) -> Tensor:
        """Store ``module.weight`` int8 (two e2m1 codes per byte) and ``module.scale`` e8m0."""
        packed, scale = quantize_mxfp4(value)
        self._store(f"{module}.weight", packed)
        self._store(f"{module}.scale", scale)
        return dequantize_mxfp4(packed, scale)

    def copy_prefix(self, source: str, target: str) -> None:
        """Repeat everything below ``source`` under ``target``: fills MTP layers, which readers must skip."""
        for name in [n for n in self.tensors if n.startswith(source)]:
            self._store(target + name.removeprefix(source), self.tensors[name])

    def write(self, out_dir: Path, shards: int) -> None:
        """Write ``model-0000k-of-0000K.safetensors`` of similar size, in insertion order, and the index."""
        total = sum(t.nbytes for t in self.tensors.values())
        groups: list[dict[str, Tensor]] = [{} for _ in range(shards)]
        done = 0
        for name, tensor in self.tensors.items():
            groups[min(done * shards // total, shards - 1)][name] = tensor
            done += tensor.nbytes
        weight_map = {}
        for number, group in enumerate(groups, start=1):
            file = f"model-{number:05d}-of-{shards:05d}.safetensors"
            save_file(group, out_dir / file, metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(group, file))
        write_json(out_dir / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map})


def load_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of one safetensors file."""
    with safe_open(path, "pt") as handle:
        return {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a dict


def read_raw(checkpoint: Path) -> dict[str, Tensor]:
    """All tensors as stored, by on-disk name, in the order of the index."""
    weight_map = read_json(checkpoint / INDEX_FILE)["weight_map"]
    raw: dict[str, Tensor] = {}
    for file in sorted(set(weight_map.values())):
        raw.update(load_tensors(checkpoint / file))
    assert set(raw) == set(weight_map), "index and shards disagree"
    return {name: raw[name] for name in weight_map}


def scale_of(raw: dict[str, Tensor], name: str) -> Tensor | None:
    """The scale stored for the weight ``name``, or None if it is not quantized."""
    module = name.removesuffix(".weight")
    return next((raw[f"{module}{end}"] for end in (*_SCALE_ENDINGS[:3], "_scale") if f"{module}{end}" in raw), None)


def decode_all(raw: dict[str, Tensor], fp8_block: Block = (128, 128)) -> dict[str, Tensor]:
    """Float32 value of every weight by on-disk name, scales consumed; integer tables stay integers.

    ``fp8_block`` is the block of float32 and e8m0 scales; uint8 scales always belong to 1x32 groups.
    """
    plain: dict[str, Tensor] = {}
    for name, tensor in raw.items():
        if name.endswith(_SCALE_ENDINGS):
            continue
        scale = scale_of(raw, name)
        if scale is None:
            plain[name] = tensor.float() if tensor.is_floating_point() else tensor
        elif tensor.dtype == torch.int8:
            plain[name] = dequantize_mxfp4(tensor, scale)
        else:
            plain[name] = dequantize_fp8(tensor, scale, (1, 32) if scale.dtype == torch.uint8 else fp8_block)
    return plain
