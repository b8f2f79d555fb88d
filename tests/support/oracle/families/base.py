"""What a family has to provide, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..layout import CheckpointWriter, read_json
from ..prompt import Prompt
from ..tokens import TokenizerSpec

BF16, F32 = torch.bfloat16, torch.float32
Config = dict[str, Any]
Options = dict[str, Any]


def fp8_config(block: tuple[int, int], scale_fmt: str | None = "ue8m0") -> Config:
    """The ``quantization_config`` of FP8 block checkpoints."""
    config: Config = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8"}
    if scale_fmt is not None:
        config["scale_fmt"] = scale_fmt
    return {**config, "weight_block_size": list(block)}


class Family:
    """One model family: config in published key layout, original tensor names, tokenizer. Instances have no state."""

    name: ClassVar[str]
    options: ClassVar[Options] = {}  # exporter switches that are not config fields, with their defaults
    index_ratio: ClassVar[int] = 1  # tokens per entry of the index

    def config(self, options: Options) -> Config:
        """Content of config.json."""
        raise NotImplementedError

    def tokenizer(self, config: Config, options: Options) -> TokenizerSpec:
        """Special tokens and chat template."""
        raise NotImplementedError

    def export(self, state: dict[str, Tensor], writer: CheckpointWriter, config: Config, options: Options) -> None:
        """Write every tensor under its original name and put the value that was stored back into ``state``."""
        raise NotImplementedError

    def build(self, out_dir: Path) -> nn.Module:
        """The reference model (float32, eager attention, no weights) for ``out_dir/config.json``."""
        return build_causal_lm(out_dir)

    def register_converters(self) -> None:
        """Teach transformers' loader what it lacks for this layout; only needed to load a directory directly."""

    def preprocessor_config(self) -> Config | None:
        """Content of preprocessor_config.json, for families that read images."""
        return None

    def prepare_media(
        self, work: Path, model: nn.Module, writer: CheckpointWriter, config: Config, seed: int
    ) -> Prompt:
        """Write the test images and return a prompt without text that knows them; may add tensors to ``writer``."""
        return Prompt(torch.empty(0))

    def generation_config(self, config: Config) -> Config:
        """Content of generation_config.json."""
        text = config.get("text_config", config)
        keys = ("bos_token_id", "eos_token_id", "pad_token_id")
        ids = {k: text[k] for k in keys if text.get(k) is not None}
        return {"_from_model_config": True, **ids, "do_sample": True, "temperature": 1.0, "top_p": 0.95}


def build_causal_lm(out_dir: Path) -> nn.Module:
    """The class that transformers itself picks for ``out_dir/config.json``."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(out_dir)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return AutoModelForCausalLM.from_config(config, dtype=F32, attn_implementation="eager").eval()


def load_directly(family: Family, checkpoint: Path) -> tuple[nn.Module, Config]:
    """Let transformers load the directory as it is: (model in float32, its loading report)."""
    import transformers

    family.register_converters()
    model_class = getattr(transformers, read_json(checkpoint / "config.json")["architectures"][0])
    model, report = model_class.from_pretrained(
        checkpoint, dtype=F32, attn_implementation="eager", output_loading_info=True
    )
    return model.eval(), report


def put_split_experts(
    state: dict[str, Tensor],
    source: str,
    target: str,
    names: tuple[str, str, str],
    put: Callable[[str, Tensor], Tensor],
) -> None:
    """Store fused experts one by one as ``{target}.{e}.{gate, up, down name}`` with ``put(module, value)``.

    ``source`` prefixes ``gate_up_proj [E, 2I, H]`` (gate rows first) and ``down_proj [E, H, I]``.
    """
    gate_up, down = state[f"{source}.gate_up_proj"], state[f"{source}.down_proj"]
    half = gate_up.shape[1] // 2
    for e in range(gate_up.shape[0]):
        gate_up[e, :half] = put(f"{target}.{e}.{names[0]}", gate_up[e, :half])
        gate_up[e, half:] = put(f"{target}.{e}.{names[1]}", gate_up[e, half:])
        down[e] = put(f"{target}.{e}.{names[2]}", down[e])
