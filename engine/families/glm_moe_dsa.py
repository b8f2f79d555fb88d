"""GLM-5, 5.1, 5.2 and 5.3: DeepSeek-V3.2's attention with interleaved rope in the indexer too and no YaRN.

From 5.2 on, some layers own no indexer and read the selection of the last layer that does.
"""

from __future__ import annotations

from engine.chat.style import ChatStyle
from engine.errors import UnsupportedModel
from engine.families.base import Config, ConfigReader, Family, check_quantization, read_yarn
from engine.families.mla_dsa import IGNORED, NAMES, Differences, build, stored
from engine.model.spec import ModelSpec, Rope


def parse(config: Config) -> ModelSpec:
    """Read config.json."""
    check_quantization(config)
    text = ConfigReader(config)
    text.require("indexer_rope_interleave", True)
    text.require("rope_interleave", True)
    text.require("rope_scaling", None)
    rope = ConfigReader(text.mapping("rope_parameters"), "rope_parameters")
    if read_yarn(rope)[0] is not None:
        raise UnsupportedModel("rope_parameters asks for YaRN, which models of this family do not use.")
    theta = rope.number("rope_theta", text.number("rope_theta", 1e6))
    rope.finish("partial_rotary_factor")
    turning = Rope(text.integer("qk_rope_head_dim"), theta, "interleaved")
    own = Differences(
        family="glm_moe_dsa",
        rope=turning,
        index_rope=turning,
        scale_factor=1.0,
        index_heads=32,
        full_index=_full_index(text, text.integer("num_hidden_layers")),
    )
    return build(text, own)


def _full_index(text: ConfigReader, count: int) -> list[bool]:
    """Which layers own an indexer: a list, else a pattern of F and S, else every `freq`-th layer behind an offset."""
    freq = text.integer("index_topk_freq", 1)
    offset = text.integer("index_skip_topk_offset", 2, at_least=0)
    rule = ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(count)]
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str):
        if set(pattern) - set("FS") or len(pattern) < count:
            raise UnsupportedModel(f"index_topk_pattern {pattern!r} is not one F or S for each of the {count} layers.")
        rule = ["full" if letter == "F" else "shared" for letter in pattern]
    elif pattern is not None:
        rule = text.choices("index_topk_pattern", None, ("full", "shared"), count)
    return [kind == "full" for kind in text.choices("indexer_types", rule, ("full", "shared"), count)]


FAMILY = Family(
    name="glm_moe_dsa",
    model_types=("glm_moe_dsa",),
    parse=parse,
    names=NAMES,
    ignored=IGNORED,
    stored=stored,
    chat=ChatStyle(think_open="<think>", think_close="</think>"),
)
