"""DeepSeek-V3.2 (also -Exp and -Speciale): token-level sparse attention on every layer, YaRN, experts in groups.

The attention's rope is interleaved, the indexer's is half-split; both turn by the same angles.
"""

from __future__ import annotations

from engine.chat.deepseek import encode_v32
from engine.chat.style import ChatStyle
from engine.families.base import Config, ConfigReader, Family, check_quantization, read_yarn
from engine.families.mla_dsa import IGNORED, NAMES, Differences, build, stored
from engine.model.spec import ModelSpec, Rope


def parse(config: Config) -> ModelSpec:
    """Read config.json; rope as `rope_scaling` with `rope_theta`, or as `rope_parameters`."""
    check_quantization(config)
    text = ConfigReader(config)
    key = "rope_parameters" if text.has("rope_parameters") else "rope_scaling"
    rope = ConfigReader(text.mapping(key), key)
    yarn, scale_factor = read_yarn(rope)
    width, theta = text.integer("qk_rope_head_dim"), rope.number("rope_theta", text.number("rope_theta", 10000.0))
    rope.finish()
    own = Differences(
        family="deepseek_v32",
        rope=Rope(width, theta, "interleaved", yarn),
        index_rope=Rope(width, theta, "half_split", yarn),
        scale_factor=scale_factor,
        index_heads=64,
        full_index=[True] * text.integer("num_hidden_layers"),
        harmless=("rope_scaling", "rope_parameters"),
    )
    return build(text, own)


FAMILY = Family(
    name="deepseek_v32",
    model_types=("deepseek_v32",),
    parse=parse,
    names=NAMES,
    ignored=IGNORED,
    stored=stored,
    chat=ChatStyle(think_open="<think>", think_close="</think>", encode=encode_v32),
)
