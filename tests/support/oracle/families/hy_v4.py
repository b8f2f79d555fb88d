"""Hy4 with images (``hy_v4_vl``, nested config) and without (``hy_v4``, flat config); MXFP4, MXFP8 or bf16.

Both take transformers' ``HYV4VLForConditionalGeneration`` as the truth: interleaved RoPE and latent norms with
``rms_norm_eps``, which is how the released checkpoints behave. ``HYV4ForCausalLM`` differs in both.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..layout import CheckpointWriter, read_json
from ..prompt import Prompt, write_images
from ..tokens import TokenizerSpec
from .base import BF16, F32, Config, Family, Options, fp8_config, put_split_experts

SUFFIX = ":6124c78e"
BOS, PAD, EOS, IMAGE, VIDEO = f"<bos{SUFFIX}>", f"<pad{SUFFIX}>", f"<eos{SUFFIX}>", "<|image_pad|>", "<|video_pad|>"
_SPECIALS = [
    *(BOS, PAD, f"<system{SUFFIX}>", f"<user{SUFFIX}>", f"<assistant{SUFFIX}>"),
    *(f"<think{SUFFIX}>", f"</think{SUFFIX}>", EOS, IMAGE, VIDEO),
]
_VOCAB = 512
_IMAGE_SIZES = [(90, 150), (70, 50)]  # become 96x160 (18 tokens) and, from below the minimum, 96x64 (9 tokens)
_IDS = {token: _VOCAB - len(_SPECIALS) + i for i, token in enumerate(_SPECIALS)}
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    f"{{{{ '<' + m.role + '{SUFFIX}>' }}}}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    f"{{% if part.type == 'image' %}}{{{{ '{IMAGE}' }}}}"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '<assistant{SUFFIX}>' }}}}{{% endif %}}"
)
# transformers name -> original name; regular expressions, applied in order
_RENAMES = (
    (r"^model\.language_model\.", "model."),
    (r"^model\.vision_tower\.", "vit."),
    (r"\.attn_hc\.(fn|base|scale)$", r".hc_attn_layer.hc_pre.hc_\1"),
    (r"\.ffn_hc\.(fn|base|scale)$", r".hc_mlp_layer.hc_pre.hc_\1"),
    (r"\.hc_head\.hc_(fn|base|scale)$", r".hc_head.hc_head_\1"),
    (r"\.self_attn\.sinks$", ".self_attn.learnable_sink_param"),
    (r"\.self_attn\.gate_proj\.", ".self_attn.linear_gate."),
    (r"^(vit\.layers\.\d+)\.layer_norm1\.", r"\1.input_layernorm."),
    (r"^(vit\.layers\.\d+)\.layer_norm2\.", r"\1.post_attention_layernorm."),
    (r"^(vit\..*)\.mlp\.fc1\.", r"\1.mlp.dense_h_to_4h."),
    (r"^(vit\..*)\.mlp\.fc2\.", r"\1.mlp.dense_4h_to_h."),
    (r"^vit\.patch_merger\.before_rms\.", "vit.perceive.norm."),
    (r"^vit\.patch_merger\.proj_conv\.", "vit.perceive.proj.0."),
    (r"^vit\.patch_merger\.proj_out\.", "vit.perceive.proj.2."),
    (r"^vit\.patch_merger\.", "vit.perceive."),
)
_F32_NAMES = re.compile(
    r"(hc_fn|hc_base|hc_scale|hc_head_\w+|learnable_sink_param|e_score_correction_bias)$"
    r"|\.mlp\.gate\.weight$|\.weights_proj\.weight$|\.k_norm\.|^lm_head\."
)
_MXFP8_NAMES = re.compile(  # the output gate, routers, norms, hyper-connections and embeddings stay unquantized
    r"^model\.layers\.\d+\.(self_attn\.((q_a|q_b|kv_a|kv_b|o)_proj\w*|indexer\.(wq_b|wk))"
    r"|mlp\.(shared_experts\.)?(gate|up|down)_proj)\.weight$"
)


def original_name(name: str) -> str:
    """Original on-disk name of a tensor of ``HYV4VLForConditionalGeneration``."""
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _text_config() -> Config:
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": _IDS[BOS],
        "eos_token_id": _IDS[EOS],
        "pad_token_id": _IDS[PAD],
        "hc_eps": 1e-06,
        "hc_magnitude": 2.0,
        "hc_mult": 4,
        "hidden_act": "silu",
        "hidden_size": 128,
        "index_head_dim": 48,
        "index_n_heads": 16,
        "index_topk": 32,
        "indexer_types": ["full", "full", "shared", "shared", "shared", "full", "shared"],
        "initializer_range": 0.006,
        "intermediate_size": 192,
        "kv_lora_rank": 64,
        "learnable_sink_init": 0.0,
        "max_position_embeddings": 4096,
        "mlp_layer_types": ["dense"] + ["sparse"] * 6,
        "moe_intermediate_size": 64,
        "n_group": 1,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 4,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 7,
        "num_key_value_heads": 4,
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 10000000.0, "rope_type": "default"},
        "routed_scaling_factor": 2.827,
        "swiglu_limit": 2.0,  # low enough for random weights to reach it
        "tie_word_embeddings": False,
        "topk_group": 1,
        "use_cache": True,
        "v_head_dim": 48,
        "vocab_size": _VOCAB,
    }


def _instantiate(config: Any) -> nn.Module:
    from transformers import HYV4VLForConditionalGeneration

    config._attn_implementation = "eager"
    return HYV4VLForConditionalGeneration(config).float().eval()


class HyV4VL(Family):
    """``experts``: how the big matrices are stored.

    mxfp4   per expert ``experts.E.X_proj.weight`` int8 + ``.scale`` e8m0; the rest bf16 and float32
    bf16    fused ``experts.gate_up_proj`` and ``experts.down_proj`` without ``.weight``
    mxfp8   fused experts and dense projections e4m3 with uint8 scales per 1x32; names by ``mxfp8_names``:
            "weight_scale_inv"  ``X.weight`` + ``X.weight_scale_inv``, fused experts too
            "modelopt"          ``X.weight`` + ``X.weight_scale``, fused ``experts.X_proj`` + ``experts.X_proj_scale``
    """

    name = "hy_v4_vl"
    options: ClassVar[Options] = {"experts": "mxfp4", "mxfp8_names": "weight_scale_inv"}

    def config(self, options: Options) -> Config:
        text = {"model_type": "hy_v4_vl_text", **_text_config()}
        text["rope_parameters"]["mrope_section"] = [6, 5, 5]
        return {
            "architectures": ["HYV4VLForConditionalGeneration"],
            "dtype": "bfloat16",
            "image_token_id": _IDS[IMAGE],
            "video_token_id": _IDS[VIDEO],
            "model_type": "hy_v4_vl",
            **self._quantization(options),
            "text_config": text,
            "tie_word_embeddings": False,
            "vision_config": {
                "model_type": "hy_v4_vl_vision",
                "attention_dropout": 0.0,
                "hidden_act": "gelu",
                "hidden_size": 64,
                "intermediate_size": 128,
                "interpolate_mode": "bilinear",
                "max_image_size": 256,
                "num_attention_heads": 4,
                "num_channels": 3,
                "num_hidden_layers": 2,
                "num_key_value_heads": 4,
                "out_hidden_size": 128,
                "patch_size": 16,
                "rms_norm_eps": 1e-05,
                "spatial_merge_size": 2,
            },
        }

    @staticmethod
    def _quantization(options: Options) -> Config:
        if options["experts"] == "mxfp4":
            fp8 = fp8_config((128, 128))
            return {"expert_dtype": "fp4", "quantization_config": {**fp8, "expert_dtype": "fp4"}}
        if options["experts"] == "mxfp8" and options["mxfp8_names"] == "modelopt":
            return {"quantization_config": {"quant_method": "modelopt", "quantization": {"quant_algo": "MXFP8"}}}
        if options["experts"] == "mxfp8":
            return {"quantization_config": fp8_config((1, 32))}
        assert options["experts"] == "bf16", options
        return {}

    def tokenizer(self, config: Config, options: Options) -> TokenizerSpec:
        return TokenizerSpec(last=_SPECIALS, bos=BOS, eos=EOS, pad=PAD, chat_template=_TEMPLATE)

    def preprocessor_config(self) -> Config | None:
        return {
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_processor_type": "HYV4VLImageProcessor",
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "merge_size": 2,
            "patch_size": 16,
            "processor_class": "HYV4VLProcessor",
            "resample": 3,
            "rescale_factor": 1 / 255,
            "size": {"shortest_edge": 64 * 64, "longest_edge": 192 * 192},
            "temporal_patch_size": 1,
        }

    def prepare_media(
        self, work: Path, model: nn.Module, writer: CheckpointWriter, config: Config, seed: int
    ) -> Prompt:
        merge_size = config["vision_config"]["spatial_merge_size"]
        images, media = write_images(_IMAGE_SIZES, seed, work, merge_size)
        return Prompt(torch.empty(0), media, config["image_token_id"], images)

    def build(self, out_dir: Path) -> nn.Module:
        from transformers import HYV4VLConfig

        config = read_json(out_dir / "config.json")
        for key in ("quantization_config", "expert_dtype"):
            config.pop(key, None)
        return _instantiate(HYV4VLConfig(**config))

    def export(self, state: dict[str, Tensor], writer: CheckpointWriter, config: Config, options: Options) -> None:
        kind, modelopt = options["experts"], options["mxfp8_names"] == "modelopt"

        def put_mxfp8(name: str, value: Tensor) -> Tensor:
            module = name.removesuffix(".weight")
            fused = not name.endswith(".weight")
            if modelopt:
                weight, scale = name, f"{module}_scale" if fused else f"{module}.weight_scale"
            else:
                weight, scale = f"{module}.weight", f"{module}.weight_scale_inv"
            return writer.put_fp8(weight, scale, value, (1, 32), torch.uint8)

        for name, value in state.items():
            target = original_name(name)
            expert = ".mlp.experts." in name
            if expert and kind == "mxfp4":
                if name.endswith("gate_up_proj"):  # down_proj is written together with it
                    source, experts = name.removesuffix(".gate_up_proj"), target.removesuffix(".gate_up_proj")
                    names = ("gate_proj", "up_proj", "down_proj")
                    put_split_experts(state, source, experts, names, writer.put_mxfp4)
            elif kind == "mxfp8" and (expert or _MXFP8_NAMES.search(target)):
                value.copy_(put_mxfp8(target, value))
            else:
                value.copy_(writer.put(target, value, F32 if _F32_NAMES.search(target) else BF16))
        # The MTP layer: an attention block with norms of its own; readers skip it.
        writer.copy_prefix("model.layers.2.self_attn.", "model.mtp_layers.0.self_attn.")
        hidden = config.get("text_config", config)["hidden_size"]
        for name in ("enorm", "hnorm"):
            writer.put(f"model.mtp_layers.0.{name}.weight", torch.ones(hidden), BF16)

    def register_converters(self) -> None:
        from transformers import conversion_mapping as mapping
        from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter

        fuse = [
            WeightConverter(
                source_patterns=["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"],
                target_patterns="mlp.experts.gate_up_proj",
                operations=[MergeModulelist(dim=0), Concatenate(dim=1)],
            ),
            WeightConverter(
                source_patterns="mlp.experts.*.down_proj.weight",
                target_patterns="mlp.experts.down_proj",
                operations=[MergeModulelist(dim=0)],
            ),
        ]
        for model_type in ("hy_v4_vl_text", "hy_v4"):
            known = mapping.get_checkpoint_conversion_mapping(model_type)
            mapping.register_checkpoint_conversion_mapping(model_type, known + fuse, overwrite=True)


class HyV4(HyV4VL):
    """Text only: the flat config, no ``vit`` tensors."""

    name = "hy_v4"

    def config(self, options: Options) -> Config:
        return {
            "architectures": ["HYV4ForCausalLM"],
            "dtype": "bfloat16",
            "model_type": "hy_v4",
            **self._quantization(options),
            **_text_config(),
        }

    def preprocessor_config(self) -> Config | None:
        return None

    def prepare_media(
        self, work: Path, model: nn.Module, writer: CheckpointWriter, config: Config, seed: int
    ) -> Prompt:
        return Prompt(torch.empty(0))

    def build(self, out_dir: Path) -> nn.Module:
        """The image class with the text config of this directory and an unused one-layer vision tower."""
        from transformers import HYV4VLConfig

        config = read_json(out_dir / "config.json")
        text = {k: v for k, v in config.items() if k in _text_config()}
        pairs = text["qk_rope_head_dim"] // 2
        sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]  # all the same for text positions
        text["rope_parameters"] = {**text["rope_parameters"], "mrope_section": sections}
        vision: Config = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
        vision |= {"out_hidden_size": text["hidden_size"], "max_image_size": 32}
        return _instantiate(HYV4VLConfig(text_config=text, vision_config=vision))

    def export(self, state: dict[str, Tensor], writer: CheckpointWriter, config: Config, options: Options) -> None:
        text_state = {k: v for k, v in state.items() if ".vision_tower." not in k}
        super().export(text_state, writer, config, options)
