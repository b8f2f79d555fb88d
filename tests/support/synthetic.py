"""Checkpoints of any size with random weights, in a family's published on-disk layout, for benchmarks and memory tests.

Names, shapes and storage come from the family file itself, so this cannot serve as an oracle.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.families import find_family
from engine.families.base import Config
from engine.model.loader import declare, disk_name
from engine.model.weights import Parameter

_SHARD_BYTES = 256 << 20


def write_synthetic(folder: Path, config: Config, seed: int = 0) -> int:
    """Write config.json and shards of random weights; returns bytes on disk. A minimal tokenizer is added."""
    folder.mkdir(parents=True, exist_ok=True)
    family, generator = find_family(config), torch.Generator().manual_seed(seed)
    shards: list[dict[str, Tensor]] = [{}]
    for name, parameter in declare(family.parse(config)).items():
        target = disk_name(family, name)
        if sum(t.nbytes for t in shards[-1].values()) > _SHARD_BYTES:
            shards.append({})
        shards[-1].update(_stored(target, parameter, family.stored(parameter, config), generator))
    total, weight_map = 0, {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file)
        weight_map.update(dict.fromkeys(shard, file))
        total += (folder / file).stat().st_size
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    _write_tokenizer(folder)
    return total


def _stored(name: str, parameter: Parameter, kind: str, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    shape, module = parameter.shape, name.removesuffix(".weight")
    if kind == "int64":
        yield name, torch.randint(0, 4, shape, generator=generator)
        return
    fan_in = shape[-1] if len(shape) > 1 else 1
    if kind in ("fp32", "bf16"):
        value = torch.randn(shape, generator=generator) / math.sqrt(fan_in)
        yield (
            name,
            (1 + 0.1 * value if len(shape) == 1 else value).to(torch.float32 if kind == "fp32" else torch.bfloat16),
        )
        return
    exponent = 127 - round(math.log2(2.5 * math.sqrt(fan_in)))
    rows, columns = shape
    if kind == "mxfp4":
        yield name, torch.randint(-128, 128, (rows, columns // 2), dtype=torch.int8, generator=generator)
        scale = torch.randint(exponent - 1, exponent + 2, (rows, columns // 32), dtype=torch.uint8, generator=generator)
        yield f"{module}.scale", scale.view(torch.float8_e8m0fnu)
        return
    codes = torch.randn(shape, generator=generator).mul_(2).to(torch.float8_e4m3fn)
    yield name, codes
    block = (1, 32) if kind == "mxfp8" else (128, 128)
    grid = (-(-rows // block[0]), -(-columns // block[1]))
    yield f"{module}.scale", torch.full(grid, exponent, dtype=torch.uint8).view(torch.float8_e8m0fnu)


def hy_v4_config(gigabytes: float) -> Config:
    """A text-only Hy4 shape with MXFP4 experts of about this size on disk."""
    hidden, width, layers = 1024, 512, 8
    per_expert = 3 * hidden * width * 0.53125
    experts = max(8, round(gigabytes * 1e9 * 0.85 / (per_expert * (layers - 1))))
    return {
        **_hy_v4_base(),
        "hidden_size": hidden,
        "intermediate_size": 4 * width,
        "moe_intermediate_size": width,
        "n_routed_experts": experts,
        "num_hidden_layers": layers,
    }


def _hy_v4_base() -> dict[str, Any]:
    fp8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "expert_dtype": "fp4"}
    return {
        "model_type": "hy_v4",
        "architectures": ["HYV4ForCausalLM"],
        "expert_dtype": "fp4",
        "quantization_config": fp8,
        "eos_token_id": 1,
        "vocab_size": 4096,
        "num_attention_heads": 16,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "q_lora_rank": 384,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "index_head_dim": 64,
        "index_n_heads": 16,
        "index_topk": 512,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
    }


def write_synthetic_hy_v4(folder: Path, nbytes: int) -> int:
    """A Hy4-shaped checkpoint of about `nbytes`."""
    return write_synthetic(folder, hy_v4_config(nbytes / 1e9))


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
