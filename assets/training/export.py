"""From trained weights to a checkpoint directory in the published layout, and back. One command:

    python -m assets.training.export RUN/last.pt --tokenizer RUN/tokenizer.json --out DIR

Experts become MXFP4 one by one, dense text projections MXFP8, gates and routers stay float32, the rest is bf16.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assets.training.card import write_card
from assets.training.model.quantize import pack_mxfp4, pack_mxfp8
from assets.training.model.twin import Twin
from assets.training.shape import SHAPES, Shape, preprocessor_config
from engine.checkpoint.directory import INDEX_FILE, Checkpoint
from engine.checkpoint.writer import write_tensors
from engine.families.hy_v4 import FAMILY, parse
from engine.model.loader import declare, disk_name, match_tensors

MOST_BYTES = 40_000_000  # of the whole directory
SHARD = "model-00001-of-00001.safetensors"
_EXPERT = re.compile(r"(layers\.\d+\.mlp\.experts)\.(\d+)\.(gate|up|down)")
# The word head counts 3 MB more in float32 and loses nothing measurable in bf16.
_SAVED_IN_BF16 = ("head",)
TEMPLATE = (
    "{{ '<|bos|>' }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ '<|system|>' + m.content + '<|eos|>' }}"
    "{% elif m.role == 'user' %}{{ '<|user|>' }}"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}{{ '<|image|>' }}{% endif %}{% endfor %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{{ '<|eos|>' }}"
    "{% elif m.role == 'assistant' %}{{ '<|assistant|>' + m.content + '<|eos|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def logical_values(model: Twin) -> dict[str, Tensor]:
    """The twin's tensors under the engine's logical names: fused experts taken apart."""
    values: dict[str, Tensor] = {}
    for name, parameter in model.state_dict().items():
        tensor = parameter.detach().float().cpu()
        if name.endswith("experts.gate_up"):
            base = name.removesuffix(".gate_up")
            for e, one in enumerate(tensor):
                values[f"{base}.{e}.gate"], values[f"{base}.{e}.up"] = one.chunk(2)
        elif name.endswith("experts.down"):
            base = name.removesuffix(".down")
            values.update({f"{base}.{e}.down": one for e, one in enumerate(tensor)})
        else:
            values[name] = tensor
    return values


def stored_tensors(values: dict[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Tensors by their names on disk, in the formats the family publishes."""
    config, made = shape.config(), {}
    for name, parameter in declare(shape.spec()).items():
        value, disk = values[name], disk_name(FAMILY, name)
        assert tuple(value.shape) == parameter.shape, f"{name}: {tuple(value.shape)} is not {parameter.shape}"
        storage = "bf16" if name in _SAVED_IN_BF16 else FAMILY.stored(parameter, config)
        if storage == "mxfp4":
            made[disk], made[disk.removesuffix(".weight") + ".scale"] = pack_mxfp4(value)
        elif storage == "mxfp8":
            made[disk], made[disk.removesuffix(".weight") + ".weight_scale"] = pack_mxfp8(value)
        else:
            made[disk] = value.to(torch.float32 if storage == "fp32" else torch.bfloat16)
    return made


def write_checkpoint(model: Twin, tokenizer: Path, out: Path) -> int:
    """Write the directory; returns its size in bytes. Refuses a model that came out too large."""
    shape = model.shape
    out.mkdir(parents=True, exist_ok=True)
    tensors = stored_tensors(logical_values(model), shape)
    write_tensors(out / SHARD, tensors)
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(tensors, SHARD)}
    for name, content in {
        "config.json": shape.config(),
        INDEX_FILE: index,
        "preprocessor_config.json": preprocessor_config(),
        "generation_config.json": {
            "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "do_sample": True, "temperature": 0.3,
            "top_p": 0.95, "max_new_tokens": 160,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>",
            "pad_token": "<|pad|>", "image_token": "<|image|>", "model_max_length": shape.context_tokens,
            "add_bos_token": False,
        },
    }.items():  # fmt: skip
        _write_json(out / name, content)
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    shutil.copyfile(tokenizer, out / "tokenizer.json")
    size = sum(p.stat().st_size for p in out.iterdir())
    assert size <= MOST_BYTES, f"the checkpoint has {size:,} bytes, more than {MOST_BYTES:,}"
    return size


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load_values(path: Path, model: Twin) -> None:
    """Read a checkpoint of this shape into the twin, as the engine reads it; proves that every tensor is used.

    Its grid of places in a picture may have another size: it is stretched.
    """
    checkpoint = Checkpoint(path)
    report = match_tensors(checkpoint, FAMILY, parse(checkpoint.config))
    report.require_complete(checkpoint)
    values = {name: stored.decode(torch.float32) for name, stored in report.found.items()}
    state: dict[str, Tensor] = {name: v for name, v in values.items() if not _EXPERT.fullmatch(name)}
    for base in sorted({m[1] for name in values if (m := _EXPERT.fullmatch(name))}):
        numbers = range(model.shape.experts)
        both = [torch.cat([values[f"{base}.{e}.gate"], values[f"{base}.{e}.up"]]) for e in numbers]
        state[f"{base}.gate_up"] = torch.stack(both)
        state[f"{base}.down"] = torch.stack([values[f"{base}.{e}.down"] for e in numbers])
    state["vision.positions"] = stretched(state["vision.positions"], model.vision.side)
    model.load_state_dict(state)


def stretched(positions: Tensor, side: int) -> Tensor:
    """Learned places [1 + n * n, width] on a grid of side * side."""
    old = math.isqrt(len(positions) - 1)
    if old == side:
        return positions
    grid = positions[1:].T.unflatten(1, (old, old)).unsqueeze(0)
    wide = F.interpolate(grid, (side, side), mode="bilinear")[0].flatten(1).T
    return torch.cat([positions[:1], wide])


def load_run(path: Path) -> tuple[Twin, dict[str, Any]]:
    """A checkpoint of `train` as a model, and what else was saved with it."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model = Twin(SHAPES[saved["shape"]])
    model.load_state_dict({name: value.float() for name, value in saved["model"].items()})
    return model, saved


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.export", description=__doc__)
    parser.add_argument("run", type=Path, help="a file written by the train stage")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scores", type=Path, help="scores.json of the evaluate stage, for the model card")
    parser.add_argument("--sources", type=Path, help="sources.json of the sources stage, for the model card")
    wishes = parser.parse_args(arguments)
    model, saved = load_run(wishes.run)
    size = write_checkpoint(model, wishes.tokenizer, wishes.out)
    write_card(wishes.out, saved.get("history", []), saved.get("tokens", 0), wishes.scores, wishes.sources)
    print(f"{wishes.out}: {size / 1e6:.2f} MB, {sum(p.numel() for p in model.parameters()):,} parameters")


if __name__ == "__main__":
    main()
