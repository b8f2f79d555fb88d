"""The model families that can be made."""

from .base import Family, Options
from .deepseek_v4 import DeepseekV4
from .deepseek_v4_vision import DeepseekV4Vision
from .hy_v4 import HyV4, HyV4VL
from .mla_dsa import DeepseekV32, GlmMoeDsa

FAMILIES: dict[str, Family] = {
    f.name: f for f in (HyV4VL(), HyV4(), DeepseekV4(), DeepseekV4Vision(), DeepseekV32(), GlmMoeDsa())
}

__all__ = ["FAMILIES", "Family", "Options"]
