"""What DeepSeek-V3.2 and GLM-5.x share: MLA with a token indexer, DeepSeek-V3 tensor names, FP8 in 128 x 128 blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import UnsupportedModel
from engine.families.base import Config, ConfigReader, Storage, check_index_topk, check_rope_width
from engine.model.spec import DenseMlp, Indexer, LatentAttention, Layer, ModelSpec, Moe, PlainResidual, Rope
from engine.model.weights import Parameter

LATENT_EPS = 1e-6  # of the latent norms and the index key norm, whatever rms_norm_eps says

_LAYER = "model.layers.{n}."
NAMES = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "layers.{n}.attention_norm": _LAYER + "input_layernorm.weight",
    "layers.{n}.mlp_norm": _LAYER + "post_attention_layernorm.weight",
    **{
        f"layers.{{n}}.attention.{ours}": f"{_LAYER}self_attn.{theirs}"
        for ours, theirs in {
            "q_down": "q_a_proj.weight",
            "q_norm": "q_a_layernorm.weight",
            "q_up": "q_b_proj.weight",
            "kv_down": "kv_a_proj_with_mqa.weight",
            "kv_norm": "kv_a_layernorm.weight",
            "kv_up": "kv_b_proj.weight",
            "output": "o_proj.weight",
            "indexer.query": "indexer.wq_b.weight",
            "indexer.key": "indexer.wk.weight",
            "indexer.key_norm.weight": "indexer.k_norm.weight",
            "indexer.key_norm.bias": "indexer.k_norm.bias",
            "indexer.head_weights": "indexer.weights_proj.weight",
        }.items()
    },
    **{f"layers.{{n}}.mlp.{p}": f"{_LAYER}mlp.{p}_proj.weight" for p in ("gate", "up", "down")},
    **{f"layers.{{n}}.mlp.shared.{p}": f"{_LAYER}mlp.shared_experts.{p}_proj.weight" for p in ("gate", "up", "down")},
    **{
        f"layers.{{n}}.mlp.experts.{{e}}.{p}": f"{_LAYER}mlp.experts.{{e}}.{p}_proj.weight"
        for p in ("gate", "up", "down")
    },
    "layers.{n}.mlp.router.weight": _LAYER + "mlp.gate.weight",
    "layers.{n}.mlp.router.bias": _LAYER + "mlp.gate.e_score_correction_bias",
}
# The next-token-prediction layer comes behind the last one; embedding and head copies in it are below the same prefix.
IGNORED = (r"^model\.layers\.{num_layers}\.",)

_FP8 = re.compile(
    r"attention\.(q_(down|up)|kv_(down|up)|output|indexer\.(query|key))$|mlp\.(shared\.)?(gate|up|down)$|experts\.\d+"
)
_FLOAT32 = re.compile(r"router\.bias|key_norm")


def stored(parameter: Parameter, config: Config) -> Storage:
    """Matrices in FP8 where the config says so; the correction bias and the key norm in float32; the rest in bf16."""
    quantized = bool(config.get("quantization_config"))
    if _FLOAT32.search(parameter.name):
        return "fp32"
    return "fp8" if quantized and _FP8.search(parameter.name) else "bf16"


@dataclass(frozen=True)
class Differences:
    """What a family of this kind sets by itself. `scale_factor` multiplies the softmax scale."""

    family: str
    rope: Rope
    index_rope: Rope
    scale_factor: float
    index_heads: int
    full_index: list[bool]  # one per layer; a layer without an own index reads the last own one before it
    harmless: tuple[str, ...] = ()


def build(text: ConfigReader, own: Differences) -> ModelSpec:
    """Read the common part of config.json; refuses keys that nobody has read."""
    hidden, count = text.integer("hidden_size"), text.integer("num_hidden_layers")
    nope, context = text.integer("qk_nope_head_dim"), text.integer("max_position_embeddings")
    if not own.full_index[0]:
        raise UnsupportedModel("The first layer has a shared index list in config.json, but there is none to share.")
    indexer = Indexer(
        heads=text.integer("index_n_heads", own.index_heads),
        width=text.integer("index_head_dim", 128),
        topk=text.integer("index_topk", 2048),
        rope=own.index_rope,
        rope_at="first",
        key_norm_eps=LATENT_EPS,
    )
    check_index_topk(indexer.topk, context)
    check_rope_width(own.rope.width, index_head_dim=indexer.width)
    moe = Moe(
        experts=text.integer("n_routed_experts"),
        topk=text.integer("num_experts_per_tok"),
        width=text.integer("moe_intermediate_size"),
        shared_width=text.integer("moe_intermediate_size") * text.integer("n_shared_experts", 1, at_least=0),
        scoring="sigmoid",
        scale=text.number("routed_scaling_factor"),
        num_groups=text.integer("n_group", 1),
        kept_groups=text.integer("topk_group", 1),
        limit=None,
        shared_limit=None,
    )
    if moe.experts % moe.num_groups or moe.kept_groups > moe.num_groups or moe.topk > moe.experts:
        raise UnsupportedModel(
            f"config.json cannot choose {moe.topk} of {moe.experts} experts in {moe.kept_groups} of {moe.num_groups} groups."
        )
    dense = DenseMlp(text.integer("intermediate_size"), None)
    leading = text.integer("first_k_dense_replace", 3, at_least=0)
    default = ["dense" if i < leading else "sparse" for i in range(count)]
    kinds = text.choices("mlp_layer_types", default, ("dense", "sparse"), count)
    text.choices("layer_types", ["indexed_attention"] * count, ("indexed_attention",), count)
    layers = []
    for number, kind in enumerate(kinds):
        attention = LatentAttention(
            heads=text.integer("num_attention_heads"),
            q_rank=text.integer("q_lora_rank"),
            kv_rank=text.integer("kv_lora_rank"),
            nope_width=nope,
            value_width=text.integer("v_head_dim"),
            rope=own.rope,
            scale=(nope + own.rope.width) ** -0.5 * own.scale_factor,
            latent_eps=LATENT_EPS,
            sinks=False,
            output_gate=False,
            indexer=indexer if own.full_index[number] else None,
            index_source=max(i for i in range(number + 1) if own.full_index[i]),
        )
        layers.append(Layer(attention, dense if kind == "dense" else moe, PlainResidual()))
    for key, value in (
        ("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu"), ("norm_topk_prob", True),
        ("moe_layer_freq", 1), ("scoring_func", "sigmoid"), ("topk_method", "noaux_tc"), ("tie_word_embeddings", False),
    ):  # fmt: skip
        text.require(key, value)
    spec = ModelSpec(
        family=own.family,
        vocab=text.integer("vocab_size"),
        hidden=hidden,
        layers=tuple(layers),
        norm_eps=text.number("rms_norm_eps"),
        context_tokens=context,
        eos_ids=text.eos(),
    )
    text.finish("num_key_value_heads", "quantization_config", "expert_dtype", *own.harmless)
    return spec
