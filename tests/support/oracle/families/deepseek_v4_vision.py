"""DeepSeek-V4-Flash-Vision-Exp: the text checkpoint plus vision tensors, with image spans in the prompt.

transformers has only the text part. Its model is fed with pseudo ids: hooks put the image rows into the embedding and
choose experts with ``bias_vl``, and the attention mask opens each image span. The image side is ``vit_v4``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn

from tests.support import vit_v4

from ..layout import CheckpointWriter
from ..prompt import IMAGE_FOLDER, Prompt, make_picture
from ..tokens import TokenizerSpec
from ..trace import Trace
from ..weights import generator
from .base import BF16, F32, Config, Options
from .deepseek_v4 import DeepseekV4

PLACEHOLDER = "<｜deepseek_image｜>"
_TINY = vit_v4.VisionConfig(
    n_layers=2, dim=64, n_heads=4, inter_dim=96, max_n_token=40, min_pixels=84 * 84, downsample_ratio=3
)
_SIZES = [(90, 150), (40, 50), (300, 260)]  # an odd number of token rows; below min_pixels; above max_n_token
_TEXT_BETWEEN = 5


@dataclass(frozen=True)
class VisionPrompt(Prompt):
    """``ids`` hold pseudo ids >= vocab_size; ``media`` has pixel_values, image_grid_thw and image_features."""

    vocab_size: int = 0
    window: int = 0
    see_spans: bool = True  # False is a mistake that tests make on purpose

    def inputs(self, ids: Tensor) -> dict[str, Any]:
        kinds = ids if self.see_spans else torch.zeros_like(ids)
        visible = vit_v4.window_visibility(kinds, self.vocab_size, self.window)
        mask = torch.where(visible, 0.0, torch.finfo(F32).min)[None, None]
        return {"input_ids": ids[None], "attention_mask": {"any": mask}}

    def place(self, ids: Tensor) -> Prompt:
        position, placed = 6, []
        for info in self.images:
            kinds = vit_v4.image_block(vit_v4.Grid(*info["merged_grid"]), position)[0]
            ids[position : position + len(kinds)] = self.vocab_size + kinds
            placed.append({**info, "first_token": position, "tokens": len(kinds), "kinds": kinds.tolist()})
            position += len(kinds) + _TEXT_BETWEEN
        assert position < 127, "images must end before the shortest prefix"
        return VisionPrompt(ids, self.media, None, placed, self.vocab_size, self.window)

    def media_tensors(self, model: nn.Module, trace: Trace) -> dict[str, Tensor]:
        return self.media


class DeepseekV4Vision(DeepseekV4):
    """As ``deepseek_v4``; three images."""

    name = "deepseek_v4_vision"
    options: ClassVar[Options] = dict(DeepseekV4.options)

    def config(self, options: Options) -> Config:
        return {**super().config(options), **_TINY.fields()}

    def tokenizer(self, config: Config, options: Options) -> TokenizerSpec:
        spec = super().tokenizer(config, options)
        return TokenizerSpec(spec.first, [*spec.last, PLACEHOLDER], spec.bos, spec.eos, spec.pad)

    def prepare_media(
        self, work: Path, model: nn.Module, writer: CheckpointWriter, config: Config, seed: int
    ) -> Prompt:
        vision = vit_v4.VisionConfig.of(config)
        weights = {
            name: writer.put(name, _random(name, shape, seed), F32 if vit_v4.is_float32(name) else BF16)
            for name, shape in vit_v4.tensor_shapes(vision, config["hidden_size"]).items()
        }
        biases = {}
        for layer in range(config["num_hidden_layers"]):
            name = f"layers.{layer}.ffn.gate.bias_vl"
            biases[layer] = writer.put(name, _random(name, (config["n_routed_experts"],), seed), F32)
        writer.put("mtp.0.ffn.gate.bias_vl", biases[0], F32)

        infos: list[dict[str, Any]] = []
        patches, features, rows = [], [], []
        for i, (height, width) in enumerate(_SIZES):
            path = work / IMAGE_FOLDER / f"image_{i}.png"
            make_picture(height, width, seed, i).save(path)
            pixels, grid = vit_v4.preprocess(Image.open(path), vision)
            merged = vit_v4.merged_grid(grid.rows * vision.patch_size, grid.cols * vision.patch_size, vision)
            infos.append({"file": path.name, "height": height, "width": width})
            infos[-1] |= {"grid_thw": [1, *grid], "merged_grid": list(merged)}
            patches.append(pixels)
            features.append(vit_v4.image_features(weights, pixels, grid, vision))
        media = {
            "pixel_values": torch.cat(patches),
            "image_grid_thw": torch.tensor([info["grid_thw"] for info in infos]),
            "image_features": torch.cat(features),
        }
        like = VisionPrompt(torch.empty(0), media, None, infos, config["vocab_size"], config["sliding_window"])
        # The spans do not move between prompts, so one placing tells all embedding rows.
        placed = like.place(torch.zeros(256, dtype=torch.int64)).images
        for info, feature in zip(placed, features, strict=True):
            kinds, order = vit_v4.image_block(vit_v4.Grid(*info["merged_grid"]), info["first_token"])
            block = torch.empty(len(kinds), config["hidden_size"])
            for kind, name in vit_v4.VECTOR_NAMES.items():
                block[kinds == kind] = weights[name]
            block[kinds == vit_v4.IMAGE] = feature[order]
            rows.append(block)
        _feed_images(model, torch.cat(rows), biases, config["vocab_size"])
        return like


def _random(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    noise = torch.randn(shape, generator=generator(seed, name))
    if "norm" in name:
        return 1 + 0.2 * noise
    if len(shape) == 2:
        return noise / shape[1] ** 0.5
    return noise if name.startswith("image_") else 0.2 * noise


def _feed_images(model: nn.Module, rows: Tensor, biases: dict[int, Tensor], vocab_size: int) -> None:
    """Let the text model accept pseudo ids; ``rows`` are their embeddings in the order of the prompt."""
    state: dict[str, Tensor] = {}

    def without_pseudo_ids(_m: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        *rest, ids = args
        state["is_image"] = (ids >= vocab_size).flatten()
        return (*rest, torch.where(ids >= vocab_size, 0, ids))

    def insert_rows(_m: nn.Module, _a: object, output: Tensor) -> Tensor:
        output = output.clone()
        count = int(state["is_image"].sum())
        output[0, state["is_image"]] = rows[:count]
        return output

    def choose_with(bias_vl: Tensor) -> Any:
        def after(router: nn.Module, _a: object, output: tuple[Tensor, Tensor, Tensor]) -> Any:
            logits, weights, ids = output
            is_image = state["is_image"][:, None]
            own = getattr(router, "e_score_correction_bias", torch.zeros(()))
            router.row_bias = torch.where(is_image, bias_vl, own)
            hashed = hasattr(router, "tid2eid")
            router.judged_rows = is_image[:, 0] | (not hashed)
            score = router.score_fn(logits)
            chosen = (score + bias_vl).topk(router.top_k, dim=-1).indices
            picked = score.gather(1, chosen)
            image_weights = picked / picked.sum(-1, keepdim=True) * router.routed_scaling_factor
            return logits, torch.where(is_image, image_weights, weights), torch.where(is_image, chosen, ids)

        return after

    embed = model.model.embed_tokens
    embed.register_forward_pre_hook(without_pseudo_ids)
    embed.register_forward_hook(insert_rows)
    for layer, bias in biases.items():
        router = model.model.layers[layer].mlp.gate
        if hasattr(router, "tid2eid"):
            router.register_forward_pre_hook(without_pseudo_ids)
        router.register_forward_hook(choose_with(bias))
