"""DeepSeek-V4: Flash, Pro, their Base checkpoints, and Flash-Vision-Exp.

A sliding window on every layer, compressed entries on most (selected by an indexer at ratio 4, all of them at ratio
128), four residual streams, experts chosen by token id in the first layers. Tensor names are the flat original ones.
"""

from __future__ import annotations

import re
from typing import Literal

from engine.chat.deepseek import IMAGE_PLACEHOLDER, encode_v4
from engine.chat.style import ChatStyle
from engine.errors import UnsupportedModel
from engine.families.base import (
    Config,
    ConfigReader,
    Family,
    Storage,
    check_index_topk,
    check_quantization,
    check_rope_width,
    read_yarn,
)
from engine.model.spec import CompressedAttention, Indexer, Layer, MhcResidual, ModelSpec, Moe, Rope, RopeVision
from engine.model.weights import Parameter
from engine.vision.reader import ImageReader
from engine.vision.span_layout import END, IMAGE, PAD, START
from engine.vision.span_reader import SpanReader

SELECTED, ALL = (
    4,
    128,
)  # compress_ratios of layers with an indexer, and of layers that read every entry; 0 is window only

_ATTENTION, _MLP, _BLOCK = "layers.{n}.attn.", "layers.{n}.ffn.", "vision.blocks.{n}."
_COMPRESSOR = {"value": "wkv.weight", "gate": "wgate.weight", "norm": "norm.weight", "bias": "ape"}
_SWIGLU = {"gate": "w1", "down": "w2", "up": "w3"}
NAMES = {
    "embedding": "embed.weight",
    "norm": "norm.weight",
    "head": "head.weight",
    **{f"collapse.{p}": f"hc_head_{p}" for p in ("fn", "base", "scale")},
    **{f"layers.{{n}}.attention_mix.{p}": f"layers.{{n}}.hc_attn_{p}" for p in ("fn", "base", "scale")},
    **{f"layers.{{n}}.mlp_mix.{p}": f"layers.{{n}}.hc_ffn_{p}" for p in ("fn", "base", "scale")},
    "layers.{n}.attention_norm": "layers.{n}.attn_norm.weight",
    "layers.{n}.mlp_norm": "layers.{n}.ffn_norm.weight",
    **{
        f"layers.{{n}}.attention.{ours}": _ATTENTION + theirs
        for ours, theirs in {
            "q_down": "wq_a.weight",
            "q_norm": "q_norm.weight",
            "q_up": "wq_b.weight",
            "kv": "wkv.weight",
            "kv_norm": "kv_norm.weight",
            "output_down": "wo_a.weight",
            "output_up": "wo_b.weight",
            "sinks": "attn_sink",
            "indexer.query": "indexer.wq_b.weight",
            "indexer.head_weights": "indexer.weights_proj.weight",
            **{f"compressor.{p}": f"compressor.{name}" for p, name in _COMPRESSOR.items()},
            **{f"indexer.compressor.{p}": f"indexer.compressor.{name}" for p, name in _COMPRESSOR.items()},
        }.items()
    },
    "layers.{n}.mlp.router.weight": _MLP + "gate.weight",
    "layers.{n}.mlp.router.bias": _MLP + "gate.bias",
    "layers.{n}.mlp.router.image_bias": _MLP + "gate.bias_vl",
    "layers.{n}.mlp.router.token_experts": _MLP + "gate.tid2eid",
    **{f"layers.{{n}}.mlp.experts.{{e}}.{p}": f"{_MLP}experts.{{e}}.{w}.weight" for p, w in _SWIGLU.items()},
    **{f"layers.{{n}}.mlp.shared.{p}": f"{_MLP}shared_experts.{w}.weight" for p, w in _SWIGLU.items()},
    # Names of the vision tensors: see engine/vision/span_layout.py.
    **{f"vision.{p}": f"image_{p}" for p in ("start", "pad", "newline", "end")},
    **{f"vision.patch.{p}": f"vision.patch_embed.proj.{p}" for p in ("weight", "bias")},
    **{f"vision.blocks.{{n}}.{p}": f"{_BLOCK}{p}.weight" for p in ("norm1", "norm2")},
    **{f"vision.blocks.{{n}}.qkv.{p}": f"{_BLOCK}attn.wqkv.{p}" for p in ("weight", "bias")},
    **{f"vision.blocks.{{n}}.output.{p}": f"{_BLOCK}attn.wo.{p}" for p in ("weight", "bias")},
    "vision.blocks.{n}.gate_up": _BLOCK + "mlp.w1.weight",
    "vision.blocks.{n}.down": _BLOCK + "mlp.w2.weight",
    "vision.norm": "vision.norm.weight",
    **{f"vision.aligner.hidden.{p}": f"aligner.w1.{p}" for p in ("weight", "bias")},
    **{f"vision.aligner.output.{p}": f"aligner.w2.{p}" for p in ("weight", "bias")},
}
_FLOAT32 = re.compile(
    r"_mix\.|^collapse|sinks|compressor\.bias|router\.(image_)?bias|^vision\..*norm|^vision\.(start|pad|newline|end)$"
)
_FP8 = re.compile(
    r"^layers.*(attention\.(q_down|q_up|kv|output_down|output_up|indexer\.query)|shared\.(gate|up|down))$"
)


def parse(config: Config) -> ModelSpec:
    """Read config.json, which is flat; vision keys begin with `vision_`."""
    check_quantization(config)
    text = ConfigReader(config)
    hidden, count, vocab = text.integer("hidden_size"), text.integer("num_hidden_layers"), text.integer("vocab_size")
    sees = any(key.startswith("vision_") for key in config)
    ratios = _ratios(text, count)
    moe = Moe(
        experts=text.integer("n_routed_experts"),
        topk=text.integer("num_experts_per_tok"),
        width=text.integer("moe_intermediate_size"),
        shared_width=text.integer("moe_intermediate_size") * text.integer("n_shared_experts", 1, at_least=0),
        scoring="sqrt_softplus",
        scale=text.number("routed_scaling_factor"),
        num_groups=1,
        kept_groups=1,
        limit=text.number("swiglu_limit"),
        shared_limit=text.number("swiglu_limit"),
        image_bias=sees,
    )
    if moe.topk > moe.experts:
        raise UnsupportedModel(f"config.json cannot choose {moe.topk} of {moe.experts} experts.")
    hashed = text.integer("num_hash_layers", 3, at_least=0)
    if hashed > count:
        raise UnsupportedModel(f"num_hash_layers in config.json is {hashed}, but there are only {count} layers.")
    residual = MhcResidual(text.integer("hc_mult"), text.number("hc_eps", 1e-6), text.integer("hc_sinkhorn_iters"))
    eps, context = text.number("rms_norm_eps"), text.integer("max_position_embeddings")
    attention = {
        ratio: _attention(text, ratio, eps, (vocab + START, vocab + END) if sees else None) for ratio in set(ratios)
    }
    if SELECTED in attention:
        check_index_topk(text.integer("index_topk"), context, SELECTED)
    layers = tuple(
        Layer(attention[ratio], _hash_routed(moe) if number < hashed else moe, residual)
        for number, ratio in enumerate(ratios)
    )
    for key, value in (
        ("attention_bias", False), ("mlp_bias", False), ("hidden_act", "silu"), ("norm_topk_prob", True),
        ("scoring_func", "sqrtsoftplus"), ("topk_method", "noaux_tc"), ("tie_word_embeddings", False),
        ("num_key_value_heads", 1),
    ):  # fmt: skip
        text.require(key, value)
    spec = ModelSpec(
        family="deepseek_v4",
        vocab=vocab,
        hidden=hidden,
        layers=layers,
        norm_eps=eps,
        context_tokens=context,
        eos_ids=text.eos(),
        vision=_vision(text, vocab) if sees else None,
        image_token=vocab + IMAGE if sees else None,
    )
    text.finish("quantization_config", "expert_dtype", "index_n_heads", "index_head_dim", "index_topk", "rope_scaling",
                "compress_rope_theta", "rope_theta")  # fmt: skip
    return spec


def _ratios(text: ConfigReader, count: int) -> list[int]:
    ratios = text.get("compress_ratios")
    if not isinstance(ratios, list) or len(ratios) < count:
        raise UnsupportedModel(
            f"compress_ratios in config.json is not a list with a number for each of {count} layers."
        )
    for ratio in ratios:
        if ratio not in (0, SELECTED, ALL):
            raise UnsupportedModel(
                f"compress_ratios in config.json holds {ratio!r}; this version knows 0, {SELECTED} and {ALL}."
            )
    return ratios[:count]


def _hash_routed(moe: Moe) -> Moe:
    return Moe(**{**vars(moe), "hash_routed": True})


def _attention(text: ConfigReader, ratio: int, eps: float, span: tuple[int, int] | None) -> CompressedAttention:
    """Layers with a compressor use the compressor's rope for queries and window too."""
    width = text.integer("head_dim")
    rope = Rope(text.integer("qk_rope_head_dim"), text.number("rope_theta", 10000.0))
    if ratio:
        scaling = ConfigReader(text.mapping("rope_scaling"), "rope_scaling")
        yarn, _ = read_yarn(scaling, refuse_scaling=True)
        scaling.finish()
        rope = Rope(rope.width, text.number("compress_rope_theta"), "interleaved", yarn)
    check_rope_width(rope.width, head_dim=width)
    groups, heads = text.integer("o_groups"), text.integer("num_attention_heads")
    if heads % groups:
        raise UnsupportedModel(f"o_groups in config.json is {groups}, which does not divide {heads} heads.")
    at: Literal["last"] = "last"
    indexer = None
    if ratio == SELECTED:
        check_rope_width(rope.width, index_head_dim=text.integer("index_head_dim"))
        indexer = Indexer(
            text.integer("index_n_heads"), text.integer("index_head_dim"), text.integer("index_topk"), rope, at, eps
        )
    return CompressedAttention(
        heads=heads,
        width=width,
        q_rank=text.integer("q_lora_rank"),
        output_groups=groups,
        output_rank=text.integer("o_lora_rank"),
        window_tokens=text.integer("sliding_window"),
        rope=rope,
        ratio=ratio,
        overlap=ratio == SELECTED,
        norm_eps=eps,
        indexer=indexer,
        open_span=span,
    )


def _vision(text: ConfigReader, vocab: int) -> RopeVision:
    for key in ("vision_max_n_token", "vision_min_pixels"):
        text.integer(key)
    text.number("vision_max_wh_ratio")
    width, heads = text.integer("vision_dim"), text.integer("vision_n_heads")
    if width % heads or width // heads % 4:
        raise UnsupportedModel(
            f"vision_dim {width} in config.json does not give {heads} heads whose channels turn by row and by column."
        )
    return RopeVision(
        width=width,
        mlp_width=text.integer("vision_inter_dim"),
        layers=text.integer("vision_n_layers"),
        heads=heads,
        patch=text.integer("vision_patch_size", 14),
        downsample=text.integer("vision_downsample_ratio", 3),
        theta=text.number("vision_rope_theta", 10000.0),
        norm_eps=1e-6,
        pad_token=vocab + PAD,
    )


def stored(parameter: Parameter, config: Config) -> Storage:
    """Experts in MXFP4 (Base: FP8), attention and shared experts in FP8, gates and biases in float32, the rest in bf16."""
    quantization = config.get("quantization_config") or {}
    if parameter.kind == "table":
        return "int64"
    if _FLOAT32.search(parameter.name):
        return "fp32"
    if parameter.kind == "expert" and "fp4" in (config.get("expert_dtype"), quantization.get("expert_dtype")):
        return "mxfp4"
    return "fp8" if quantization and (parameter.kind == "expert" or _FP8.search(parameter.name)) else "bf16"


def image_reader(spec: ModelSpec, config: Config, preprocessor: Config) -> ImageReader:
    """Everything it needs is in config.json."""
    assert isinstance(spec.vision, RopeVision)
    return SpanReader(
        spec.vision,
        spec.vocab,
        config["vision_max_n_token"],
        config["vision_min_pixels"],
        config["vision_max_wh_ratio"],
    )


FAMILY = Family(
    name="deepseek_v4",
    model_types=("deepseek_v4",),
    parse=parse,
    names=NAMES,
    ignored=(r"^mtp\.\d+\.",),
    stored=stored,
    chat=ChatStyle(think_open="<think>", think_close="</think>", image=IMAGE_PLACEHOLDER, encode=encode_v4),
    image_reader=image_reader,
)
