"""The size of the model and its config files. Knows numbers and JSON, no tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.families.hy_v4 import parse
from engine.model.spec import HyVision, ModelSpec

# Ids of the marks; the tokenizer is trained with them in this order.
SPECIAL_TOKENS = (
    "<|bos|>", "<|eos|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|image|>", "<|video|>", "<|system|>",
)  # fmt: skip
BOS, EOS, PAD, USER, ASSISTANT, IMAGE, VIDEO, SYSTEM = range(8)
LEAST_PIXELS, MOST_PIXELS = 64 * 64, 256 * 256  # after resizing; a side may be longer than 256 in narrow pictures


@dataclass(frozen=True)
class Shape:
    """Sizes of the network. The default is what is shipped; `TINY` is for tests on a CPU."""

    vocab: int = 4096
    hidden: int = 384
    layers: int = 8
    dense_width: int = 768
    expert_width: int = 128
    experts: int = 16
    chosen_experts: int = 4
    heads: int = 8
    query_rank: int = 192
    latent_rank: int = 128
    nope_width: int = 32
    rope_width: int = 32
    value_width: int = 64
    index_heads: int = 16
    index_width: int = 64
    index_topk: int = 64
    index_layers: tuple[int, ...] = (0, 1, 5)
    rope_sections: tuple[int, int, int] = (6, 5, 5)
    vision_hidden: int = 256
    vision_width: int = 640
    vision_layers: int = 8
    vision_heads: int = 8
    # Pixels; the learned grid of positions is this / 16 = 17 a side. Odd on purpose: where a picture has just as many
    # patches as the grid, torch ignores the scale on CPUs and not on GPUs; pictures have an even number of patches.
    position_side: int = 272
    context_tokens: int = 4096

    def spec(self) -> ModelSpec:
        """The engine's own description of this model, so that both sides read the same config."""
        return parse(self.config())

    def vision(self) -> HyVision:
        vision = self.spec().vision
        assert isinstance(vision, HyVision)
        return vision

    def config(self) -> dict[str, Any]:
        """config.json as published checkpoints of the family have it."""
        index = ["full" if i in self.index_layers else "shared" for i in range(self.layers)]
        text = {
            "model_type": "hy_v4_vl_text", "vocab_size": self.vocab, "hidden_size": self.hidden,
            "intermediate_size": self.dense_width, "moe_intermediate_size": self.expert_width,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.heads,
            "max_position_embeddings": self.context_tokens, "n_routed_experts": self.experts,
            "num_experts_per_tok": self.chosen_experts, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
            "norm_topk_prob": True, "routed_scaling_factor": 2.5, "swiglu_limit": 10.0, "hidden_act": "silu",
            "q_lora_rank": self.query_rank, "kv_lora_rank": self.latent_rank, "qk_nope_head_dim": self.nope_width,
            "qk_rope_head_dim": self.rope_width, "qk_head_dim": self.nope_width + self.rope_width,
            "head_dim": self.rope_width, "v_head_dim": self.value_width, "attention_bias": False,
            "attention_dropout": 0.0, "index_n_heads": self.index_heads, "index_head_dim": self.index_width,
            "index_topk": self.index_topk, "indexer_types": index,
            "layer_types": ["indexed_attention"] * self.layers,
            "mlp_layer_types": ["dense"] + ["sparse"] * (self.layers - 1), "hc_mult": 4, "hc_magnitude": 2.0,
            "hc_eps": 1e-6, "learnable_sink_init": 0.0, "rms_norm_eps": 1e-5, "initializer_range": 0.02,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(self.rope_sections),
            },
            "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "tie_word_embeddings": False,
            "use_cache": True,
        }  # fmt: skip
        vision = {
            "model_type": "hy_v4_vl_vision", "hidden_size": self.vision_hidden, "intermediate_size": self.vision_width,
            "num_hidden_layers": self.vision_layers, "num_attention_heads": self.vision_heads,
            "num_key_value_heads": self.vision_heads, "num_channels": 3, "out_hidden_size": self.hidden,
            "patch_size": 16, "spatial_merge_size": 2, "max_image_size": self.position_side, "hidden_act": "gelu",
            "interpolate_mode": "bilinear", "rms_norm_eps": 1e-5, "attention_dropout": 0.0,
        }  # fmt: skip
        return {
            "architectures": ["HYV4VLForConditionalGeneration"], "model_type": "hy_v4_vl", "dtype": "bfloat16",
            "expert_dtype": "fp4", "image_token_id": IMAGE, "video_token_id": VIDEO, "tie_word_embeddings": False,
            "quantization_config": {
                "quant_method": "mxfp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "activation_scheme": "dynamic",
                "weight_block_size": [1, 32], "expert_dtype": "fp4",
            },
            "text_config": text, "vision_config": vision,
        }  # fmt: skip


TINY = Shape(
    vocab=768, hidden=64, layers=3, dense_width=64, expert_width=32, experts=4, chosen_experts=2, heads=2,
    query_rank=32, latent_rank=32, nope_width=16, rope_width=16, value_width=32, index_heads=16, index_width=32,
    index_topk=32, index_layers=(0, 1), rope_sections=(4, 2, 2), vision_hidden=64, vision_width=64, vision_layers=2,
    vision_heads=2,
)  # fmt: skip
# The text model as shipped with a smaller vision tower: what the first trial had, so that its weights can be trained on.
SMALL_EYES = replace(Shape(), vision_hidden=192, vision_width=768, vision_layers=6, vision_heads=6)
SHAPES = {"full": Shape(), "small-eyes": SMALL_EYES, "tiny": TINY}


def preprocessor_config() -> dict[str, Any]:
    """preprocessor_config.json: the pixel budget and the normalisation."""
    return {
        "image_processor_type": "HYV4VLImageProcessor", "processor_class": "HYV4VLProcessor", "do_convert_rgb": True,
        "do_normalize": True, "do_rescale": True, "do_resize": True, "resample": 3, "rescale_factor": 1 / 255,
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
        "patch_size": 16, "merge_size": 2, "temporal_patch_size": 1,
        "size": {"shortest_edge": LEAST_PIXELS, "longest_edge": MOST_PIXELS},
    }  # fmt: skip
