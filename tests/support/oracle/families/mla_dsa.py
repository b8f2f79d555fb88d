"""DeepSeek-V3.2 and GLM-5.x: MLA with a token-level indexer, ``model.layers.N...`` names, bf16 or FP8 blocks."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..layout import CheckpointWriter
from ..tokens import TokenizerSpec
from .base import BF16, F32, Config, Family, Options, fp8_config, put_split_experts

_QUANTIZED = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "wq_b", "wk"}
_QUANTIZED |= {"gate_proj", "up_proj", "down_proj"}
_F32_NAMES = ("mlp.gate.e_score_correction_bias", "indexer.k_norm.weight", "indexer.k_norm.bias")


def _export(
    state: dict[str, Tensor],
    writer: CheckpointWriter,
    config: Config,
    fp8_block: tuple[int, int] | None,
    f32_names: tuple[str, ...],
) -> None:
    """Store all tensors (names are transformers' own, except for split experts), then a full MTP layer."""

    def put_matrix(module: str, value: Tensor) -> Tensor:
        if fp8_block is None:
            return writer.put(f"{module}.weight", value, BF16)
        return writer.put_fp8(f"{module}.weight", f"{module}.weight_scale_inv", value, fp8_block, F32)

    for name, value in state.items():
        module = name.removesuffix(".weight")
        if name.endswith("mlp.experts.gate_up_proj"):
            experts = name.removesuffix(".gate_up_proj")
            put_split_experts(state, experts, experts, ("gate_proj", "up_proj", "down_proj"), put_matrix)
        elif name.endswith("mlp.experts.down_proj"):
            continue  # written together with gate_up_proj
        elif module.rsplit(".", 1)[-1] in _QUANTIZED:
            value.copy_(put_matrix(module, value))
        else:
            value.copy_(writer.put(name, value, F32 if name.endswith(f32_names) else BF16))
    _put_mtp(writer, config)


def _put_mtp(writer: CheckpointWriter, config: Config) -> None:
    """The MTP layer sits at index ``num_hidden_layers``; readers skip it.

    It copies a sparse layer that owns an indexer, so that loading it by mistake changes the logits.
    """
    last = config["num_hidden_layers"]
    owners = [i for i in range(last) if f"model.layers.{i}.self_attn.indexer.wk.weight" in writer.tensors]
    source = max(i for i in owners if f"model.layers.{i}.mlp.gate.weight" in writer.tensors)
    prefix, eye = f"model.layers.{last}.", torch.eye(config["hidden_size"])
    writer.copy_prefix(f"model.layers.{source}.", prefix)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        writer.put(f"{prefix}{name}.weight", eye.diagonal(), BF16)
    writer.put(f"{prefix}eh_proj.weight", eye.repeat(1, 2), BF16)


class DeepseekV32(Family):
    """Float32 ``weight_scale_inv``; with 128x128 blocks ``kv_a_proj_with_mqa`` ends in a partial block."""

    name = "deepseek_v32"
    options: ClassVar[Options] = {"fp8_block": (128, 128)}

    def config(self, options: Options) -> Config:
        return {
            "architectures": ["DeepseekV32ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "ep_size": 1,
            "first_k_dense_replace": 1,
            "hidden_act": "silu",
            "hidden_size": 256,
            "index_head_dim": 64,
            "index_n_heads": 16,
            "index_topk": 32,
            "initializer_range": 0.02,
            "intermediate_size": 256,
            "kv_lora_rank": 128,
            "max_position_embeddings": 4096,
            "model_type": "deepseek_v32",
            "moe_intermediate_size": 32,
            "moe_layer_freq": 1,
            "n_group": 4,
            "n_routed_experts": 12,
            "n_shared_experts": 1,
            "norm_topk_prob": True,
            "num_attention_heads": 4,
            "num_experts_per_tok": 3,
            "num_hidden_layers": 4,
            "num_key_value_heads": 4,
            "num_nextn_predict_layers": 1,
            "q_lora_rank": 128,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 32,  # with kv_lora_rank 160 rows: one full and one partial 128-block
            "quantization_config": fp8_config(options["fp8_block"]),
            "rms_norm_eps": 1e-06,
            "rope_scaling": {
                "beta_fast": 32,
                "beta_slow": 1,
                "factor": 4,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 1024,
                "type": "yarn",
            },
            "rope_theta": 10000,
            "routed_scaling_factor": 2.5,
            "scoring_func": "sigmoid",
            "tie_word_embeddings": False,
            "topk_group": 2,
            "topk_method": "noaux_tc",
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "v_head_dim": 64,
            "vocab_size": 512,
        }

    def tokenizer(self, config: Config, options: Options) -> TokenizerSpec:
        bos, eos, pad = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
        last = ["<think>", "</think>", "｜DSML｜", "<｜User｜>", "<｜Assistant｜>"]
        return TokenizerSpec([bos, eos, pad], last, bos, eos, pad)

    def export(self, state: dict[str, Tensor], writer: CheckpointWriter, config: Config, options: Options) -> None:
        _export(state, writer, config, options["fp8_block"], _F32_NAMES)


class GlmMoeDsa(Family):
    """Some layers reuse the index list of an earlier one. ``dtype``: "bf16" or "fp8"."""

    name = "glm_moe_dsa"
    options: ClassVar[Options] = {"dtype": "bf16", "fp8_block": (128, 128)}
    _stops = ("<|endoftext|>", "<|user|>", "<|observation|>")
    _specials = (
        *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        *("<think>", "</think>"),
    )
    _template = (
        "[gMASK]<sop>{% for m in messages %}"
        "{% if m.role == 'system' %}{{ '<|system|>' + m.content }}"
        "{% elif m.role == 'user' %}{{ '<|user|>' + m.content }}"
        "{% else %}{{ '<|assistant|></think>' + m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}"
        "{{ '</think>' if enable_thinking is false else '<think>' }}{% endif %}"
    )

    def config(self, options: Options) -> Config:
        assert options["dtype"] in ("bf16", "fp8"), options
        vocab = 512
        first_special = vocab - len(self._specials)
        config = {
            "architectures": ["GlmMoeDsaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "dtype": "bfloat16",
            "eos_token_id": [first_special + self._specials.index(t) for t in self._stops],
            "first_k_dense_replace": 1,
            "head_dim": 16,
            "hidden_act": "silu",
            "hidden_size": 128,
            "index_head_dim": 32,
            "index_n_heads": 16,
            "index_skip_topk_offset": 3,
            "index_topk": 32,
            "index_topk_freq": 2,  # own indexers at 0, 1, 2, 4; layers 3 and 5 reuse the list of 2 and 4
            "indexer_rope_interleave": True,
            "initializer_range": 0.02,
            "intermediate_size": 192,
            "kv_lora_rank": 128,
            "max_position_embeddings": 4096,
            "model_type": "glm_moe_dsa",
            "moe_intermediate_size": 32,
            "n_group": 1,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "norm_topk_prob": True,
            "num_attention_heads": 4,
            "num_experts_per_tok": 3,
            "num_hidden_layers": 6,
            "num_key_value_heads": 4,
            "num_nextn_predict_layers": 1,
            "pad_token_id": first_special,
            "q_lora_rank": 128,
            "qk_head_dim": 64,
            "qk_nope_head_dim": 48,
            "qk_rope_head_dim": 16,
            "rms_norm_eps": 1e-05,
            "rope_interleave": True,
            "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
            "routed_scaling_factor": 2.5,
            "scoring_func": "sigmoid",
            "tie_word_embeddings": False,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "use_cache": True,
            "v_head_dim": 64,
            "vocab_size": vocab,
        }
        if options["dtype"] == "fp8":
            config["quantization_config"] = fp8_config(options["fp8_block"], scale_fmt=None)
        return config

    def tokenizer(self, config: Config, options: Options) -> TokenizerSpec:
        stop = self._stops[0]
        return TokenizerSpec(last=list(self._specials), eos=stop, pad=stop, chat_template=self._template)

    def export(self, state: dict[str, Tensor], writer: CheckpointWriter, config: Config, options: Options) -> None:
        fp8 = options["dtype"] == "fp8"
        names = (*_F32_NAMES, "mlp.gate.weight") if fp8 else _F32_NAMES
        _export(state, writer, config, options["fp8_block"] if fp8 else None, names)
