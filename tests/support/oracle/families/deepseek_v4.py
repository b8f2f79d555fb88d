"""DeepSeek-V4: flat original names, FP8 blocks, MXFP4 or FP8 experts, hash / window / CSA / HCA layers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..layout import CheckpointWriter
from ..tokens import TokenizerSpec
from .base import BF16, F32, Config, Family, Options, fp8_config, put_split_experts

# transformers path inside a layer -> original path and how it is stored; "fp8" adds .weight and .scale
_LAYER_NAMES: dict[str, tuple[str, torch.dtype | str]] = {
    "input_layernorm.weight": ("attn_norm.weight", BF16),
    "post_attention_layernorm.weight": ("ffn_norm.weight", BF16),
    "attn_hc.fn": ("hc_attn_fn", F32),
    "attn_hc.base": ("hc_attn_base", F32),
    "attn_hc.scale": ("hc_attn_scale", F32),
    "ffn_hc.fn": ("hc_ffn_fn", F32),
    "ffn_hc.base": ("hc_ffn_base", F32),
    "ffn_hc.scale": ("hc_ffn_scale", F32),
    "self_attn.sinks": ("attn.attn_sink", F32),
    "self_attn.q_a_norm.weight": ("attn.q_norm.weight", BF16),
    "self_attn.kv_norm.weight": ("attn.kv_norm.weight", BF16),
    "self_attn.q_a_proj.weight": ("attn.wq_a", "fp8"),
    "self_attn.q_b_proj.weight": ("attn.wq_b", "fp8"),
    "self_attn.kv_proj.weight": ("attn.wkv", "fp8"),
    "self_attn.o_a_proj.weight": ("attn.wo_a", "fp8"),
    "self_attn.o_b_proj.weight": ("attn.wo_b", "fp8"),
    "self_attn.compressor.kv_proj.weight": ("attn.compressor.wkv.weight", BF16),
    "self_attn.compressor.gate_proj.weight": ("attn.compressor.wgate.weight", BF16),
    "self_attn.compressor.kv_norm.weight": ("attn.compressor.norm.weight", BF16),
    "self_attn.compressor.position_bias": ("attn.compressor.ape", F32),
    "self_attn.compressor.indexer.kv_proj.weight": ("attn.indexer.compressor.wkv.weight", BF16),
    "self_attn.compressor.indexer.gate_proj.weight": ("attn.indexer.compressor.wgate.weight", BF16),
    "self_attn.compressor.indexer.kv_norm.weight": ("attn.indexer.compressor.norm.weight", BF16),
    "self_attn.compressor.indexer.position_bias": ("attn.indexer.compressor.ape", F32),
    "self_attn.compressor.indexer.q_b_proj.weight": ("attn.indexer.wq_b", "fp8"),
    "self_attn.compressor.indexer.scorer.weights_proj.weight": ("attn.indexer.weights_proj.weight", BF16),
    "mlp.gate.weight": ("ffn.gate.weight", BF16),
    "mlp.gate.e_score_correction_bias": ("ffn.gate.bias", F32),
    "mlp.gate.tid2eid": ("ffn.gate.tid2eid", torch.int64),
    "mlp.shared_experts.gate_proj.weight": ("ffn.shared_experts.w1", "fp8"),
    "mlp.shared_experts.down_proj.weight": ("ffn.shared_experts.w2", "fp8"),
    "mlp.shared_experts.up_proj.weight": ("ffn.shared_experts.w3", "fp8"),
}
_GLOBAL_NAMES: dict[str, tuple[str, torch.dtype | str]] = {
    "model.embed_tokens.weight": ("embed.weight", BF16),
    "model.norm.weight": ("norm.weight", BF16),
    "model.hc_head.hc_fn": ("hc_head_fn", F32),
    "model.hc_head.hc_base": ("hc_head_base", F32),
    "model.hc_head.hc_scale": ("hc_head_scale", F32),
    "lm_head.weight": ("head.weight", BF16),
}
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"


class DeepseekV4(Family):
    """``base``: FP8 experts and float32 scales everywhere, as in the -Base checkpoints."""

    name = "deepseek_v4"
    options: ClassVar[Options] = {"base": False, "fp8_block": (128, 128)}
    index_ratio = 4

    def config(self, options: Options) -> Config:
        base = options["base"]
        return {
            "architectures": ["DeepseekV4ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "expert_dtype": "fp8" if base else "fp4",
            "hc_eps": 1e-06,
            "hc_mult": 4,
            "hc_sinkhorn_iters": 20,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 128,
            "index_head_dim": 64,
            "index_n_heads": 16,
            "index_topk": 8,
            "initializer_range": 0.02,
            "max_position_embeddings": 4096,
            "model_type": "deepseek_v4",
            "moe_intermediate_size": 128,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "norm_topk_prob": True,
            "num_attention_heads": 4,
            "num_experts_per_tok": 3,
            "num_hash_layers": 1,
            "num_hidden_layers": 5,
            "num_key_value_heads": 1,
            "num_nextn_predict_layers": 1,
            "o_groups": 2,
            "o_lora_rank": 128,
            "q_lora_rank": 128,
            "qk_rope_head_dim": 32,
            "quantization_config": fp8_config(options["fp8_block"], None if base else "ue8m0"),
            "rms_norm_eps": 1e-06,
            "rope_scaling": {
                "beta_fast": 32,
                "beta_slow": 1,
                "factor": 4,
                "original_max_position_embeddings": 1024,
                "type": "yarn",
            },
            "rope_theta": 10000,
            "routed_scaling_factor": 1.5,
            "scoring_func": "sqrtsoftplus",
            "sliding_window": 32,
            "swiglu_limit": 2.0,  # low enough for random weights to reach it
            "tie_word_embeddings": False,
            "topk_method": "noaux_tc",
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": 512,
            "compress_rope_theta": 160000,
            "compress_ratios": [0, 4, 128, 4, 128, 0],  # one per layer; the last belongs to the MTP layer
        }

    def tokenizer(self, config: Config, options: Options) -> TokenizerSpec:
        last = ["<think>", "</think>", "｜DSML｜", "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"]
        return TokenizerSpec([BOS, EOS, PAD], last, BOS, EOS, PAD)

    def export(self, state: dict[str, Tensor], writer: CheckpointWriter, config: Config, options: Options) -> None:
        scale_dtype = F32 if options["base"] else torch.float8_e8m0fnu

        def put_fp8(module: str, value: Tensor) -> Tensor:
            block = options["fp8_block"]
            return writer.put_fp8(f"{module}.weight", f"{module}.scale", value, block, scale_dtype)

        def put(source: str, target: str, kind: torch.dtype | str) -> None:
            value = state[source]
            value.copy_(writer.put(target, value, kind) if isinstance(kind, torch.dtype) else put_fp8(target, value))

        for source, (target, kind) in _GLOBAL_NAMES.items():
            put(source, target, kind)
        put_expert = put_fp8 if options["base"] else writer.put_mxfp4
        for i in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{i}."
            for leaf in [k.removeprefix(prefix) for k in state if k.startswith(prefix)]:
                if leaf in _LAYER_NAMES:
                    target, kind = _LAYER_NAMES[leaf]
                    put(prefix + leaf, f"layers.{i}.{target}", kind)
                else:
                    assert leaf.startswith("mlp.experts."), f"no original name for {prefix}{leaf}"
            put_split_experts(state, f"{prefix}mlp.experts", f"layers.{i}.ffn.experts", ("w1", "w3", "w2"), put_expert)
        self._put_mtp(writer, config, options, scale_dtype)

    @staticmethod
    def _put_mtp(writer: CheckpointWriter, config: Config, options: Options, scale_dtype: torch.dtype) -> None:
        """A complete next-token layer, copied from the first HCA layer without its compressor; readers skip it."""
        source = config["compress_ratios"].index(128)
        writer.copy_prefix(f"layers.{source}.", "mtp.0.")
        for name in [n for n in writer.tensors if n.startswith("mtp.0.attn.compressor.")]:
            del writer.tensors[name]
        eye = torch.eye(config["hidden_size"])
        for name in ("enorm", "hnorm", "norm"):
            writer.put(f"mtp.0.{name}.weight", eye.diagonal(), BF16)
        for name in ("e_proj", "h_proj"):
            writer.put_fp8(f"mtp.0.{name}.weight", f"mtp.0.{name}.scale", eye, options["fp8_block"], scale_dtype)
        for name in ("fn", "base", "scale"):
            writer.put(f"mtp.0.hc_head_{name}", writer.tensors[f"hc_head_{name}"], F32)
