"""Deterministic random weights whose spread makes mistakes visible.

Matrices have variance 1/fan_in, so attention scores, router logits and vocabulary logits have std about 1. Blocks of a
matrix differ in magnitude, so scales cover several exponents. Projections into a latent norm are quiet, so the epsilon
of that norm matters. Every tensor has its own generator: none depends on another.
"""

from __future__ import annotations

import hashlib
import math
import re

import torch
from torch import Tensor, nn

_GAINS = {"o_proj": 2.5, "o_b_proj": 2.5, "down_proj": 2.0, "fc2": 1.5}  # else the residual stream hides the blocks
_QUIET = 0.01
_BEFORE_NORM = re.compile(r"(self_attn\.(q_a_proj|kv_proj)|compressor\.(indexer\.)?kv_proj|indexer\.wk)\.weight$")
_SPREADS = {  # std of small tensors, by last or last but one name
    "e_score_correction_bias": 0.1,
    "bias": 0.1,
    "sinks": 0.5,
    "base": 0.5,
    "hc_base": 0.5,
    "position_bias": 0.5,
    "image_newline": 1.0,
    "embed_tokens": 1.0,
    "position_embedding": 0.5,
}
_SMOOTH = ("gate", "scorer", "weights_proj", "lm_head")  # matrices without block texture


def generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator that depends only on ``(seed, name)``."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def textured(w: Tensor, block: tuple[int, int], exponents: range, g: torch.Generator) -> Tensor:
    """Multiply each ``block`` of the last two dims by a random power of two, keeping the mean square."""
    *lead, rows, cols = w.shape
    grid = (*lead, -(-rows // block[0]), -(-cols // block[1]))
    factor = torch.pow(2.0, torch.randint(exponents.start, exponents.stop, grid, generator=g).float())
    factor = factor / factor.square().mean().sqrt()
    return w * factor.repeat_interleave(block[0], -2)[..., :rows, :].repeat_interleave(block[1], -1)[..., :cols]


def random_tensor(name: str, shape: torch.Size, seed: int) -> Tensor:
    """Random float32 value for the parameter or buffer ``name`` of a transformers model."""
    g = generator(seed, name)
    noise = torch.randn(shape, generator=g)
    *_, module, leaf = ("", *name.split("."))
    if ("norm" in name and leaf == "weight") or "before_rms" in name:
        return 1 + 0.2 * noise
    if leaf in ("scale", "hc_scale"):  # gains of the hyper-connections stay positive
        return 0.5 + 0.2 * noise.abs()
    spread = next((std for key, std in _SPREADS.items() if key in (leaf, module)), None)
    if spread is not None:
        return spread * noise
    if len(shape) == 4:  # convolution
        return noise / math.sqrt(math.prod(shape[1:]))
    return _random_matrix(name, noise * _GAINS.get(module, _GAINS.get(leaf, 1.0)) / math.sqrt(shape[-1]), g)


def _random_matrix(name: str, w: Tensor, g: torch.Generator) -> Tensor:
    if "experts." in name and w.dim() == 3:
        return textured(w, (1, 32), range(-3, 3), g)
    return w if name.split(".")[-2] in _SMOOTH else textured(w, (128, 128), range(-1, 2), g)


@torch.no_grad()
def randomize(model: nn.Module, seed: int, ordinary: range) -> None:
    """Fill every parameter and persistent buffer.

    Hash tables get distinct experts per token. Head rows outside ``ordinary`` are shrunk, so that greedy decoding never
    emits a special token and tests need no stop handling.
    """
    text = model.config.get_text_config()
    for name, tensor in model.state_dict().items():
        if name.endswith("tid2eid"):
            order = torch.rand(tensor.shape[0], text.n_routed_experts, generator=generator(seed, name)).argsort(-1)
            tensor.copy_(order[:, : tensor.shape[1]])
            continue
        tensor.copy_(random_tensor(name, tensor.shape, seed))
        if _BEFORE_NORM.search(name):
            tensor.mul_(_QUIET)
        elif name.endswith("kv_a_proj_with_mqa.weight"):
            tensor[: -text.qk_rope_head_dim].mul_(_QUIET)  # the last rows are rope keys, which no norm follows
        elif name == "lm_head.weight":
            tensor[: ordinary.start].mul_(0.1)
            tensor[ordinary.stop :].mul_(0.1)
