"""All model families. A new one is a file here and a line below."""

from __future__ import annotations

from engine.errors import UnsupportedModel
from engine.families import deepseek_v4, deepseek_v32, glm_moe_dsa, hy_v4
from engine.families.base import Config, Family

FAMILIES: tuple[Family, ...] = (hy_v4.FAMILY, deepseek_v4.FAMILY, deepseek_v32.FAMILY, glm_moe_dsa.FAMILY)


def find_family(config: Config) -> Family:
    """The family that claims this config; raises UnsupportedModel naming what is known."""
    for family in FAMILIES:
        if family.claims(config):
            return family
    known = ", ".join(sorted(kind for family in FAMILIES for kind in family.model_types))
    raise UnsupportedModel(f"config.json has model_type {config.get('model_type')!r}; this version runs {known}.")
