"""Published models: ``load(name)`` gives config.json in the family's real key layout, ``TOTALS[name]`` known sizes.

============================ ========================== =====================================================
name                         repository                 sizes are from
============================ ========================== =====================================================
deepseek_v32                 DeepSeek-V3.2              model card
glm_5_2, glm_5_0             GLM-5.2, GLM-5             per-file survey of the 5.2 repositories
deepseek_v4_flash            DeepSeek-V4-Flash          layout arithmetic, agrees with the card
deepseek_v4_pro              DeepSeek-V4-Pro            index file: 864,704,792,696 B in 145,116 tensors
hy4, hy4_preview             Hy4 (images), Hy4-preview  model card; its ~1540 GB (bf16) fits the main layers alone,
                                                        its ~770 GB (MXFP8) fits nothing: one scale byte per 32
                                                        values alone makes 807 GB, so it is left out
============================ ========================== =====================================================

Parameter counts and bytes hold within 0.5 % (``TOLERANCE``). MTP is the next-token-prediction layer that every
checkpoint carries and that a reader skips. Config values that no source names are those of transformers' classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOLERANCE = 0.005


@dataclass(frozen=True)
class Totals:
    """``parameters`` without MTP; ``checkpoint_bytes`` with MTP, by kind of checkpoint; cache per token, all layers."""

    parameters: float
    parameters_with_mtp: float
    active_parameters: float
    cache_bytes_bf16: int
    cache_bytes_compact: int  # FP8 rows of 656 or 584 bytes, FP8 index keys of 132 bytes
    checkpoint_bytes: dict[str, float] = field(default_factory=dict)


_GLM_BYTES: dict[str, float] = {"bf16": 1_506_659_919_872, "fp8": 753_329_940_480}
TOTALS: dict[str, Totals] = {
    "deepseek_v32": Totals(671e9, 685e9, 37e9, 85_888, 48_068, {"fp8": 689e9}),
    "glm_5_0": Totals(744e9, 753.9e9, 40e9, 109_824, 61_464, {"bf16": 1507e9, "fp8": 753e9}),
    "glm_5_2": Totals(744e9, 753.9e9, 40e9, 95_232, 53_940, _GLM_BYTES),
    "deepseek_v4_flash": Totals(284.33e9, 290.94e9, 13.2e9, 6_880, 3_850, {"mxfp4": 159.6e9}),
    "deepseek_v4_pro": Totals(1573.0e9, 1598.8e9, 48.8e9, 9_848, 5_511, {"mxfp4": 864_704_792_696}),
    "hy4": Totals(770e9, 780e9, 49e9, 95_232, 53_940),
    "hy4_preview": Totals(770e9, 780e9, 49e9, 95_232, 53_940),
}
# Without the MTP layer.
MAIN_LAYERS_BYTES = {"hy4": 1540e9, "hy4_preview": 1540e9}
TENSORS = {"deepseek_v4_pro": 145_116}


def load(name: str) -> dict[str, Any]:
    """Content of the model's config.json."""
    return json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
