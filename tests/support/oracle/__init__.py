"""Makes tiny checkpoints in original on-disk layouts together with what transformers computes from them in fp32.

``make_checkpoint`` writes one directory, ``load_case`` reads it back, ``cached_case`` keeps one copy per distinct
setting. Nothing here imports transformers before a checkpoint is really made.
"""

from .case import OracleCase, load_case
from .families import FAMILIES
from .layout import decode_all, read_raw
from .maker import cached_case, make_checkpoint

__all__ = ["FAMILIES", "OracleCase", "cached_case", "decode_all", "load_case", "make_checkpoint", "read_raw"]
