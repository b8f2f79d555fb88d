"""Hy4: `hy_v4_vl` (text and images) and `hy_v4` (text).

Sparse attention on every layer with shared index lists, sinks, output gate, hyper-connections, mixture of experts.
Both use interleaved rope and latent norms with rms_norm_eps: the released checkpoints need that, although the text
class of transformers differs in both.
"""

from __future__ import annotations

import re

from engine.chat.style import ChatStyle
from engine.errors import UnsupportedModel
from engine.families.base import (
    Config,
    ConfigReader,
    Family,
    FusedExperts,
    Storage,
    check_index_topk,
    check_quantization,
)
from engine.model.spec import (
    DenseMlp,
    HyVision,
    IhcResidual,
    Indexer,
    LatentAttention,
    Layer,
    ModelSpec,
    Moe,
    Rope,
)
from engine.model.weights import Parameter
from engine.vision.grid_reader import GridReader
from engine.vision.reader import ImageReader

_LAYER, _BLOCK = "model.layers.{n}.", "vit.layers.{n}."
NAMES = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    **{f"collapse.{p}": f"model.hc_head.hc_head_{p}" for p in ("fn", "base", "scale")},
    **{f"layers.{{n}}.attention_mix.{p}": f"{_LAYER}hc_attn_layer.hc_pre.hc_{p}" for p in ("fn", "base", "scale")},
    **{f"layers.{{n}}.mlp_mix.{p}": f"{_LAYER}hc_mlp_layer.hc_pre.hc_{p}" for p in ("fn", "base", "scale")},
    "layers.{n}.attention_norm": _LAYER + "input_layernorm.weight",
    "layers.{n}.mlp_norm": _LAYER + "post_attention_layernorm.weight",
    "layers.{n}.attention.q_down": _LAYER + "self_attn.q_a_proj.weight",
    "layers.{n}.attention.q_norm": _LAYER + "self_attn.q_a_layernorm.weight",
    "layers.{n}.attention.q_up": _LAYER + "self_attn.q_b_proj.weight",
    "layers.{n}.attention.kv_down": _LAYER + "self_attn.kv_a_proj_with_mqa.weight",
    "layers.{n}.attention.kv_norm": _LAYER + "self_attn.kv_a_layernorm.weight",
    "layers.{n}.attention.kv_up": _LAYER + "self_attn.kv_b_proj.weight",
    "layers.{n}.attention.gate": _LAYER + "self_attn.linear_gate.weight",
    "layers.{n}.attention.output": _LAYER + "self_attn.o_proj.weight",
    "layers.{n}.attention.sinks": _LAYER + "self_attn.learnable_sink_param",
    "layers.{n}.attention.indexer.query": _LAYER + "self_attn.indexer.wq_b.weight",
    "layers.{n}.attention.indexer.key": _LAYER + "self_attn.indexer.wk.weight",
    "layers.{n}.attention.indexer.key_norm.weight": _LAYER + "self_attn.indexer.k_norm.weight",
    "layers.{n}.attention.indexer.key_norm.bias": _LAYER + "self_attn.indexer.k_norm.bias",
    "layers.{n}.attention.indexer.head_weights": _LAYER + "self_attn.indexer.weights_proj.weight",
    **{f"layers.{{n}}.mlp.{p}": f"{_LAYER}mlp.{p}_proj.weight" for p in ("gate", "up", "down")},
    **{f"layers.{{n}}.mlp.shared.{p}": f"{_LAYER}mlp.shared_experts.{p}_proj.weight" for p in ("gate", "up", "down")},
    **{
        f"layers.{{n}}.mlp.experts.{{e}}.{p}": f"{_LAYER}mlp.experts.{{e}}.{p}_proj.weight"
        for p in ("gate", "up", "down")
    },
    "layers.{n}.mlp.router.weight": _LAYER + "mlp.gate.weight",
    "layers.{n}.mlp.router.bias": _LAYER + "mlp.gate.e_score_correction_bias",
    "vision.patch.weight": "vit.embeddings.patch_embedding.weight",
    "vision.patch.bias": "vit.embeddings.patch_embedding.bias",
    "vision.positions": "vit.embeddings.position_embedding.weight",
    **{
        f"vision.blocks.{{n}}.{ours}.{p}": f"{_BLOCK}{theirs}.{p}"
        for ours, theirs in {
            "norm1": "input_layernorm",
            "norm2": "post_attention_layernorm",
            "query": "self_attn.q_proj",
            "key": "self_attn.k_proj",
            "value": "self_attn.v_proj",
            "output": "self_attn.o_proj",
            "up": "mlp.dense_h_to_4h",
            "down": "mlp.dense_4h_to_h",
        }.items()
        for p in ("weight", "bias")
    },
    "vision.merger.norm": "vit.perceive.norm.weight",
    **{f"vision.merger.merge.{p}": f"vit.perceive.proj.0.{p}" for p in ("weight", "bias")},
    **{f"vision.merger.project.{p}": f"vit.perceive.proj.2.{p}" for p in ("weight", "bias")},
    "vision.merger.newline": "vit.perceive.image_newline",
}
# In float32 whatever the rest is stored in.
_FLOAT32 = re.compile(r"_mix\.|^collapse|sinks|router|head_weights|key_norm|^head$")
_MXFP8 = re.compile(
    r"(attention\.(q_(down|up)|kv_(down|up)|output|indexer\.(query|key))|mlp\.(shared\.)?(gate|up|down)|experts\.\d+)"
)


def parse(config: Config) -> ModelSpec:
    """Read config.json: nested for hy_v4_vl, flat for hy_v4."""
    check_quantization(config)
    outer = ConfigReader(config)
    outer.require("tie_word_embeddings", False)
    sees = config["model_type"] == "hy_v4_vl"
    if sees:
        for key in (
            "text_config",
            "vision_config",
            "image_token_id",
            "video_token_id",
            "quantization_config",
            "expert_dtype",
        ):
            outer.get(key)
        outer.finish()
        if not config.get("text_config") or not config.get("vision_config"):
            raise UnsupportedModel("config.json of a hy_v4_vl model needs text_config and vision_config.")
    text = ConfigReader(config["text_config"], "text_config") if sees else outer
    vocab = text.integer("vocab_size")
    hidden, count = text.integer("hidden_size"), text.integer("num_hidden_layers", at_most=1000)
    eps, limit = text.number("rms_norm_eps", 1e-5), text.number("swiglu_limit", 10.0)
    rope = _rope(text, sees)
    nope, heads = text.integer("qk_nope_head_dim", 192), text.integer("num_attention_heads")
    indexer = Indexer(
        heads=text.integer("index_n_heads", 32),
        width=text.integer("index_head_dim", 128),
        topk=text.integer("index_topk", 2048),
        rope=rope,
        rope_at="last",
        key_norm_eps=eps,
    )
    check_index_topk(indexer.topk, text.integer("max_position_embeddings", 262144))
    moe = Moe(
        experts=text.integer("n_routed_experts", at_most=10_000),
        topk=text.integer("num_experts_per_tok"),
        width=text.integer("moe_intermediate_size"),
        shared_width=text.integer("moe_intermediate_size") * text.integer("n_shared_experts", 1, at_least=0),
        scoring="sigmoid",
        scale=text.number("routed_scaling_factor", 2.827),
        num_groups=text.integer("n_group", 1),
        kept_groups=text.integer("topk_group", 1),
        limit=limit if limit > 0 else None,
        shared_limit=None,
    )
    if moe.topk > moe.experts:
        raise UnsupportedModel(f"num_experts_per_tok is {moe.topk}, more than the {moe.experts} experts there are.")
    if moe.experts % moe.num_groups or moe.kept_groups > moe.num_groups:
        raise UnsupportedModel(
            f"n_group {moe.num_groups} and topk_group {moe.kept_groups} do not divide {moe.experts} experts."
        )
    dense = DenseMlp(text.integer("intermediate_size"), None)
    kinds = text.choices("mlp_layer_types", ["dense"] + ["sparse"] * (count - 1), ("dense", "sparse"), count)
    default = ["full" if i == 0 or i % 4 == 1 else "shared" for i in range(count)]
    index = text.choices("indexer_types", default, ("full", "shared"), count)
    text.choices("layer_types", ["indexed_attention"] * count, ("indexed_attention",), count)
    if index[0] != "full":
        raise UnsupportedModel("indexer_types starts with a shared layer, which has no list to share.")
    residual = IhcResidual(text.integer("hc_mult", 4), text.number("hc_eps", 1e-6), text.number("hc_magnitude", 2.0))
    layers = []
    for number, (mlp, kind) in enumerate(zip(kinds, index, strict=True)):
        attention = LatentAttention(
            heads=heads,
            q_rank=text.integer("q_lora_rank"),
            kv_rank=text.integer("kv_lora_rank"),
            nope_width=nope,
            value_width=text.integer("v_head_dim"),
            rope=rope,
            scale=(nope + rope.width) ** -0.5,
            latent_eps=eps,
            sinks=True,
            output_gate=True,
            indexer=indexer if kind == "full" else None,
            index_source=max(i for i in range(number + 1) if index[i] == "full"),
        )
        layers.append(Layer(attention, dense if mlp == "dense" else moe, residual))
    for key, value in (("attention_bias", False), ("hidden_act", "silu"), ("norm_topk_prob", True)):
        text.require(key, value)
    spec = ModelSpec(
        family="hy_v4_vl" if sees else "hy_v4",
        vocab=vocab,
        hidden=hidden,
        layers=tuple(layers),
        norm_eps=eps,
        context_tokens=text.integer("max_position_embeddings", 262144),
        eos_ids=text.eos(),
        vision=_vision(config["vision_config"], hidden) if sees else None,
        image_token=outer.integer("image_token_id", 120120, at_least=0, at_most=vocab - 1) if sees else None,
    )
    text.finish(
        "learnable_sink_init", "num_key_value_heads", "quantization_config", "expert_dtype", "tie_word_embeddings"
    )
    return spec


def _rope(text: ConfigReader, sees: bool) -> Rope:
    rope = ConfigReader(text.mapping("rope_parameters"), "rope_parameters")
    rope.require("rope_type", "default")
    width = text.integer("qk_rope_head_dim", 64)
    sections = rope.get("mrope_section", [12, 10, 10]) if sees else ()
    if not isinstance(sections, (list, tuple)) or not all(isinstance(n, int) for n in sections):
        raise UnsupportedModel(f"mrope_section in rope_parameters is {sections!r}, expected three whole numbers.")
    if sections and (len(sections) != 3 or sum(sections) != width // 2):
        raise UnsupportedModel(
            f"mrope_section {list(sections)} in rope_parameters does not add up to half of qk_rope_head_dim {width}."
        )
    theta = rope.number("rope_theta", text.number("rope_theta", 1e7))
    rope.finish("mrope_section", "partial_rotary_factor")
    return Rope(width, theta, "interleaved", None, (sections[0], sections[1], sections[2]) if sections else None)


def _vision(config: Config, hidden: int) -> HyVision:
    vision = ConfigReader(config, "vision_config")
    for key, value in (("hidden_act", "gelu"), ("interpolate_mode", "bilinear"), ("num_channels", 3)):
        vision.require(key, value)
    vision.require("out_hidden_size", hidden)
    eps = vision.number("rms_norm_eps", 1e-5)
    spec = HyVision(
        width=vision.integer("hidden_size"),
        mlp_width=vision.integer("intermediate_size"),
        layers=vision.integer("num_hidden_layers"),
        heads=vision.integer("num_attention_heads"),
        patch=vision.integer("patch_size", 16),
        merge=vision.integer("spatial_merge_size", 2),
        max_side_pixels=vision.integer("max_image_size", 2048),
        norm_eps=eps,
        merger_eps=eps,
    )
    vision.require("num_key_value_heads", spec.heads)
    vision.finish()
    return spec


def stored(parameter: Parameter, config: Config) -> Storage:
    """bf16 repositories keep gates, routers and the head in float32; quantized ones use MXFP8 or MXFP4 for matrices."""
    if _FLOAT32.search(parameter.name):
        return "fp32"
    quantization = config.get("quantization_config") or {}
    if (
        quantization
        and parameter.kind == "expert"
        and "fp4" in (config.get("expert_dtype"), quantization.get("expert_dtype"))
    ):
        return "mxfp4"
    if quantization.get("quant_method") in ("mxfp8", "modelopt") and _MXFP8.search(parameter.name):
        return "mxfp8"
    return "bf16"


def image_reader(spec: ModelSpec, config: Config, preprocessor: Config) -> ImageReader:
    """One image token per merged patch and one per row end."""
    assert isinstance(spec.vision, HyVision) and spec.image_token is not None
    return GridReader(spec.vision, spec.image_token, preprocessor)


FAMILY = Family(
    name="hy_v4",
    model_types=("hy_v4_vl", "hy_v4"),
    parse=parse,
    names=NAMES,
    ignored=(r"^model\.mtp_layers\.",),
    stored=stored,
    chat=ChatStyle(think_open="<think:6124c78e>", think_close="</think:6124c78e>", image="<|image_pad|>"),
    fused_experts=FusedExperts("model.layers.{n}.mlp.experts.gate_up_proj", "model.layers.{n}.mlp.experts.down_proj"),
    image_reader=image_reader,
)
