"""Test inputs: random token ids and synthetic images that went through transformers' own image processor."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from .trace import Trace
from .weights import generator

IMAGE_FOLDER = "expected"


@dataclass(frozen=True)
class Prompt:
    """``ids`` int64 [T]; ``media`` is empty or pixel_values [patches, C*P*P] and image_grid_thw [images, 3]."""

    ids: Tensor
    media: dict[str, Tensor] = field(default_factory=dict)
    image_token: int | None = None
    images: list[dict[str, Any]] = field(default_factory=list)  # file, height, width, grid_thw, tokens, first_token

    def inputs(self, ids: Tensor) -> dict[str, Any]:
        """Keyword arguments of a forward pass over ``ids [n]``: a batch of one that starts at position 0."""
        kwargs = {"input_ids": ids[None], **self.media}
        if self.media:
            kwargs["mm_token_type_ids"] = (ids == self.image_token).int()[None]
        return kwargs

    def place(self, ids: Tensor) -> Prompt:
        """A prompt of the text ``ids [T]`` in which the images of this one overwrite some tokens."""
        position, placed = 12, []
        for info in self.images:
            tokens = info["tokens"]
            assert position + tokens <= len(ids), "prompt too short for its images"
            ids[position : position + tokens] = self.image_token
            placed.append({**info, "first_token": position})
            position += tokens + 9
        return Prompt(ids, self.media, self.image_token, placed)

    def media_tensors(self, model: nn.Module, trace: Trace) -> dict[str, Tensor]:
        """Expected tensors about the images, after a pass that ``trace`` observed."""
        kinds = (self.ids == self.image_token).int()[None]
        positions, delta = model.model.get_rope_index(
            self.ids[None], mm_token_type_ids=kinds, image_grid_thw=self.media["image_grid_thw"]
        )
        features = torch.cat(trace.image_features)
        own = {"image_features": features, "position_ids": positions[:, 0], "position_delta": delta[0]}
        return {**self.media, **own}


def make_picture(height: int, width: int, seed: int, index: int) -> Image.Image:
    """Smooth coloured waves plus noise: every patch differs and resizing matters."""
    g = generator(seed, f"image{index}")
    freq, phase = torch.rand(3, 2, generator=g) * 0.15 + 0.02, torch.rand(3, generator=g) * 6
    y, x = torch.meshgrid(torch.arange(height).float(), torch.arange(width).float(), indexing="ij")
    waves = torch.stack([torch.sin(freq[c, 0] * y + freq[c, 1] * x + phase[c]) for c in range(3)], dim=-1)
    pixels = 127.5 + 100 * waves + 12 * torch.randn(height, width, 3, generator=g)
    return Image.fromarray(pixels.clamp(0, 255).to(torch.uint8).numpy())


def write_images(
    sizes: list[tuple[int, int]], seed: int, out_dir: Path, merge_size: int
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Write ``expected/image_N.png`` for every (height, width) and preprocess them with transformers' class."""
    if not sizes:
        return [], {}
    from transformers.models.hy_v4_vl.image_processing_pil_hy_v4_vl import HYV4VLImageProcessorPil

    infos: list[dict[str, Any]] = []
    pictures = []
    for i, (height, width) in enumerate(sizes):
        file = f"image_{i}.png"
        make_picture(height, width, seed, i).save(out_dir / IMAGE_FOLDER / file)
        pictures.append(Image.open(out_dir / IMAGE_FOLDER / file).convert("RGB"))
        infos.append({"file": file, "height": height, "width": width})
    batch = HYV4VLImageProcessorPil.from_pretrained(out_dir)(images=pictures, return_tensors="pt")
    for info, (_, rows, cols) in zip(infos, batch["image_grid_thw"].tolist(), strict=True):
        info["grid_thw"] = [1, rows, cols]
        info["tokens"] = (rows // merge_size) * (cols // merge_size + 1)  # one newline token per merged row
    pixels = torch.as_tensor(np.asarray(batch["pixel_values"]), dtype=torch.float32)
    return infos, {"pixel_values": pixels, "image_grid_thw": batch["image_grid_thw"]}


def make_prompt(like: Prompt, length: int, *, ordinary: range, bos: int | None, seed: int, attempt: int) -> Prompt:
    """``[bos] text image text image text ...`` of exactly ``length`` tokens, with the images of ``like``."""
    g = generator(seed, f"prompt{attempt}")
    ids = torch.randint(ordinary.start, ordinary.stop, (length,), generator=g)
    if bos is not None:
        ids[0] = bos
    return like.place(ids)
