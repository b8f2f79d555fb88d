"""What a model is, as data: every layer names its attention, MLP and residual kind with their sizes.

Families fill these in (engine/families); blocks, cache, planner and reports read them. No tensors, no names on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels.router import Scoring


@dataclass(frozen=True)
class Yarn:
    """Frequency interpolation for long contexts (YaRN); no attention scaling, that belongs to the attention's scale."""

    factor: float
    original_tokens: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of `width` channels. `sections` (T, H, W) share the frequencies out over three position rows."""

    width: int
    theta: float
    style: Literal["interleaved", "half_split"] = "interleaved"
    yarn: Yarn | None = None
    sections: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Indexer:
    """Lightning indexer: scores every visible entry and keeps the `topk` best."""

    heads: int
    width: int
    topk: int
    rope: Rope
    rope_at: Literal["first", "last"]
    key_norm_eps: float


@dataclass(frozen=True)
class LatentAttention:
    """MLA over selected tokens. A layer without its own `indexer` reads the selection of layer `index_source`."""

    heads: int
    q_rank: int
    kv_rank: int
    nope_width: int
    value_width: int
    rope: Rope
    scale: float
    latent_eps: float
    sinks: bool
    output_gate: bool
    indexer: Indexer | None
    index_source: int


@dataclass(frozen=True)
class CompressedAttention:
    """DeepSeek-V4: a sliding window plus (ratio > 0) entries that stand for `ratio` tokens each.

    `overlap`: an entry also mixes the window before it. With an `indexer` the entries are selected, without all are read.
    """

    heads: int
    width: int
    q_rank: int
    output_groups: int
    output_rank: int
    window_tokens: int
    rope: Rope
    ratio: int
    overlap: bool
    norm_eps: float
    indexer: Indexer | None
    open_span: tuple[int, int] | None = None  # token ids that begin and end a stretch whose tokens all see each other


@dataclass(frozen=True)
class DenseMlp:
    """SwiGLU feed-forward layer."""

    width: int
    limit: float | None


@dataclass(frozen=True)
class Moe:
    """Mixture of experts with shared experts. `hash_routed`: the token id names the experts."""

    experts: int
    topk: int
    width: int
    shared_width: int
    scoring: Scoring
    scale: float
    num_groups: int
    kept_groups: int
    limit: float | None
    shared_limit: float | None
    hash_routed: bool = False
    image_bias: bool = False  # a second choice bias for image tokens


@dataclass(frozen=True)
class PlainResidual:
    """x + block(norm(x))."""


@dataclass(frozen=True)
class IhcResidual:
    """Independent hyper-connections (Hy4): gates in and out, streams never mix directly."""

    streams: int
    eps: float
    magnitude: float


@dataclass(frozen=True)
class MhcResidual:
    """Manifold hyper-connections (DeepSeek-V4): streams are mixed by a doubly stochastic matrix."""

    streams: int
    eps: float
    iterations: int


Attention = LatentAttention | CompressedAttention
Mlp = DenseMlp | Moe
Residual = PlainResidual | IhcResidual | MhcResidual


@dataclass(frozen=True)
class Layer:
    """One decoder layer; the residual kind is used around both blocks."""

    attention: Attention
    mlp: Mlp
    residual: Residual


@dataclass(frozen=True)
class HyVision:
    """ViT of Hy4: learned position grid, full attention, 2x2 convolutional merger, newline vector per merged row."""

    width: int
    mlp_width: int
    layers: int
    heads: int
    patch: int
    merge: int
    max_side_pixels: int  # side of the learned position grid, in pixels
    norm_eps: float
    merger_eps: float


@dataclass(frozen=True)
class RopeVision:
    """ViT of DeepSeek-V4-Flash-Vision-Exp: 2-D rope, RMS norms, SwiGLU, unfold-and-project aligner."""

    width: int
    mlp_width: int
    layers: int
    heads: int
    patch: int
    downsample: int
    theta: float
    norm_eps: float
    pad_token: int  # id of the tokens that fill up a picture's span, before it and inside


Vision = HyVision | RopeVision


@dataclass(frozen=True)
class ModelSpec:
    """A whole model."""

    family: str
    vocab: int
    hidden: int
    layers: tuple[Layer, ...]
    norm_eps: float
    context_tokens: int
    eos_ids: frozenset[int]
    vision: Vision | None = None
    image_token: int | None = None

    @property
    def whole_pictures(self) -> bool:
        """Whether all tokens of a picture must be read in one step, because they see each other."""
        return any(isinstance(la.attention, CompressedAttention) and la.attention.open_span for la in self.layers)

    @property
    def streams(self) -> int:
        """Parallel residual streams; 1 for a plain residual."""
        residual = self.layers[0].residual
        return 1 if isinstance(residual, PlainResidual) else residual.streams
