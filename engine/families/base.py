"""What a family file provides, and a reader for config.json that leaves no key unread."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.chat.style import ChatStyle
from engine.errors import UnsupportedModel
from engine.model.spec import ModelSpec, Yarn
from engine.model.weights import Parameter
from engine.vision.reader import ImageReader


class UnknownKey(UnsupportedModel):
    """A config key that no part of a family reads."""

    def __init__(self, where: str, key: str, value: object) -> None:
        super().__init__(
            f"{where} has the key {key} ({value!r}), which this version does not know and which could change the result."
        )
        self.where, self.key = where, key


Storage = Literal["fp32", "bf16", "fp8", "mxfp8", "mxfp4", "int64"]
Config = dict[str, Any]


@dataclass(frozen=True)
class FusedExperts:
    """Names of expert tensors stored together: gate_up [E, 2I, H] with the gate rows first, down [E, H, I]."""

    gate_up: str
    down: str


@dataclass(frozen=True)
class Family:
    """One model family. `{n}` is a layer number and `{e}` an expert number in `names`."""

    name: str
    model_types: tuple[str, ...]  # values of config.model_type this file claims
    parse: Callable[[Config], ModelSpec]  # raises UnsupportedModel naming the key
    names: Mapping[str, str]  # logical parameter name -> tensor name on disk
    ignored: tuple[str, ...]  # regular expressions of tensors known and not needed; {num_layers} is filled in
    stored: Callable[[Parameter, Config], Storage]  # how published checkpoints store a parameter
    chat: ChatStyle
    fused_experts: FusedExperts | None = None
    image_reader: Callable[[ModelSpec, Config, Config], ImageReader] | None = None  # (spec, config, preprocessor)

    def claims(self, config: Config) -> bool:
        """Whether this family reads such a config."""
        return config.get("model_type") in self.model_types

    def ignored_patterns(self, spec: ModelSpec) -> list[re.Pattern[str]]:
        """The compiled `ignored` of one model."""
        return [re.compile(pattern.replace("{num_layers}", str(len(spec.layers)))) for pattern in self.ignored]


class ConfigReader:
    """Reads keys of one config object by name and type; `finish` refuses keys nobody asked for."""

    def __init__(self, config: Config, where: str = "config.json") -> None:
        if not isinstance(config, dict):
            raise UnsupportedModel(f"{where} is {config!r}, expected an object.")
        self._config, self._where = config, where
        self._read: set[str] = set()

    def has(self, key: str) -> bool:
        return self._config.get(key) is not None

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value, or `default` if absent or null."""
        self._read.add(key)
        value = self._config.get(key)
        return default if value is None else value

    def _typed(self, key: str, kinds: tuple[type, ...], default: Any, what: str) -> Any:
        value = self.get(key, default)
        if value is None:
            raise UnsupportedModel(f"{self._where} does not say {key}.")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise UnsupportedModel(f"{key} in {self._where} is {value!r}, expected {what}.")
        return value

    def integer(self, key: str, default: int | None = None, at_least: int = 1, at_most: int = 1 << 40) -> int:
        value = self._typed(key, (int,), default, "a whole number")
        if value > at_most:
            raise UnsupportedModel(f"{key} in {self._where} is {value}, expected at most {at_most}.")
        if value < at_least:
            raise UnsupportedModel(f"{key} in {self._where} is {value}, expected at least {at_least}.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._typed(key, (int, float), default, "a number"))

    def mapping(self, key: str) -> Config:
        """A nested object, {} if absent."""
        return self._typed(key, (dict,), {}, "an object")

    def choices(self, key: str, default: list[str] | None, allowed: Iterable[str], count: int) -> list[str]:
        """A list with one of `allowed` per layer."""
        value = self._typed(key, (list,), default, "a list")
        known = list(allowed)
        for item in value:
            if item not in known:
                raise UnsupportedModel(f"{key} in {self._where} holds {item!r}; this version knows {', '.join(known)}.")
        if len(value) < count:
            raise UnsupportedModel(f"{key} in {self._where} has {len(value)} entries for {count} layers.")
        return value[:count]

    def require(self, key: str, *allowed: Any) -> None:
        """The key may be absent; any other value would change the result and is refused."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            raise UnsupportedModel(f"{key} in {self._where} is {value!r}; this version computes only {allowed[0]!r}.")

    def eos(self) -> frozenset[Any]:
        """eos_token_id, one or a list."""
        value = self.get("eos_token_id", [])
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(i, int) for i in ids):
            raise UnsupportedModel(f"eos_token_id in {self._where} is {value!r}, expected token ids.")
        return frozenset(ids)

    def finish(self, *harmless: str) -> None:
        """Refuse keys that were not read and are not known to leave the result unchanged."""
        unknown = sorted(set(self._config) - self._read - set(harmless) - set(HARMLESS))
        if unknown:
            raise UnknownKey(self._where, unknown[0], self._config[unknown[0]])


# Keys that describe training, bookkeeping or generation defaults.
HARMLESS = (
    "_name_or_path", "architectures", "attention_dropout", "auto_map", "bos_token_id", "dtype", "torch_dtype",
    "initializer_range", "model_type", "output_router_logits", "pad_token_id", "transformers_version", "use_cache",
    "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size", "pretraining_tp", "head_dim", "qk_head_dim",
    "num_nextn_predict_layers", "unsloth_version", "_attn_implementation_autoset", "return_dict", "output_attentions",
    "output_hidden_states", "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type",
)  # fmt: skip


def check_quantization(config: Config, known_experts: tuple[str, ...] = ("fp4", "fp8")) -> None:
    """Refuse quantization schemes whose tensors this version cannot read; the tensors themselves tell block sizes."""
    quantization = config.get("quantization_config")
    if quantization is None:
        return
    if not isinstance(quantization, dict):
        raise UnsupportedModel("quantization_config in config.json is not an object.")
    method, fmt = quantization.get("quant_method"), quantization.get("fmt", "e4m3")
    if method == "modelopt":  # the exporter of some MXFP8 repositories; its algorithm says what the tensors are
        inner = quantization.get("quantization")
        method = str(inner.get("quant_algo") if isinstance(inner, dict) else quantization.get("quant_algo")).lower()
    if method not in ("fp8", "mxfp8", "mxfp4") or fmt not in ("e4m3", "float8_e4m3fn", None):
        raise UnsupportedModel(
            f"quantization_config in config.json asks for {method!r} ({fmt!r}); this version reads fp8, mxfp8 and mxfp4."
        )
    for where in (config, quantization):
        if where.get("expert_dtype", "fp4") not in known_experts:
            raise UnsupportedModel(
                f"expert_dtype is {where['expert_dtype']!r}; this version reads {', '.join(known_experts)}."
            )


def fp8_block(config: Config) -> tuple[int, int] | None:
    """Block size of FP8 weights as the config states it, if it does."""
    quantization = config.get("quantization_config") or {}
    block = quantization.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block):
        return block[0], block[1]
    return None


def read_yarn(rope: ConfigReader, refuse_scaling: bool = False) -> tuple[Yarn | None, float]:
    """YaRN of a rope_scaling or rope_parameters object, and what it multiplies the softmax scale with.

    DeepSeek-V3.2 multiplies by m^2, m = 0.1 mscale_all_dim ln(factor) + 1; cos and sin are never scaled, so configs that
    would scale them are refused. With `refuse_scaling` (DeepSeek-V4) the factor must be 1.
    """
    kind = rope.get("rope_type", rope.get("type", "default"))
    rope.get("type")
    if kind == "default":
        return None, 1.0
    if kind != "yarn":
        raise UnsupportedModel(f"rope type {kind!r} is not known; this version computes 'default' and 'yarn'.")
    factor, original = rope.number("factor"), rope.integer("original_max_position_embeddings")
    yarn = Yarn(factor, original, rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0))
    rope.require("attention_factor", 1.0, 1)
    all_dim, mscale = rope.number("mscale_all_dim", 0.0), rope.number("mscale", 0.0)
    if all_dim != mscale or (all_dim == 0.0) != refuse_scaling:
        raise UnsupportedModel(
            f"rope scaling with mscale {mscale} and mscale_all_dim {all_dim} is not known; this version computes "
            + ("neither." if refuse_scaling else "equal values.")
        )
    m = 0.1 * all_dim * math.log(factor) + 1.0 if factor > 1 else 1.0
    return yarn, m * m


def check_index_topk(topk: int, context_tokens: int, tokens_per_entry: int = 1) -> None:
    """Refuse a selection that is larger than everything there can be to select from."""
    if topk * tokens_per_entry > context_tokens:
        raise UnsupportedModel(
            f"index_topk in config.json is {topk}, more than the {context_tokens // tokens_per_entry} entries that "
            f"max_position_embeddings {context_tokens} leaves to choose from."
        )


def check_rope_width(rope_width: int, **widths: int) -> None:
    """Refuse rotary channels that do not come in pairs or do not fit into what they turn."""
    for key, width in widths.items():
        if rope_width % 2 or rope_width > width:
            raise UnsupportedModel(
                f"qk_rope_head_dim in config.json is {rope_width}; it must be even and at most {key}, which is {width}."
            )
