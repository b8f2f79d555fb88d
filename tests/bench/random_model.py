"""Models of a published shape with random weights made on the device: the blocks are the product's, only numbers differ.

As many of the published layers as memory allows are built, from the first on, so that every kind of layer is there.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from engine.cache.cache import KvCache
from engine.cache.layout import CacheLayout, declare_cache
from engine.families import find_family
from engine.families.base import Config
from engine.memory.plan import gib
from engine.model.loader import declare
from engine.model.spec import CompressedAttention, LatentAttention, Layer, ModelSpec, Moe
from engine.model.transformer import Transformer
from engine.model.weights import Parameter
from engine.model.workspace import Fp8Workspace, WorkspaceExperts, workspace_bytes
from kernels.experts import MxFp4Matrix

MXFP4_BYTES = 17 / 32  # per value: half a byte of codes, a scale per 32
LIVE_ROWS = 16  # conversations the cache holds frontiers for


class RandomWeights:
    """Answers every request of a block with numbers that keep activations near 1; experts are packed MXFP4."""

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        experts: int,
        prefix: str = "",
        workspace: Fp8Workspace | None = None,
    ) -> None:
        self._dtype, self._device, self._experts, self._prefix = dtype, device, experts, prefix
        self._workspace = workspace or Fp8Workspace(device)  # one, shared by all scopes

    def scope(self, name: str) -> RandomWeights:
        return RandomWeights(self._dtype, self._device, self._experts, f"{self._prefix}{name}.", self._workspace)

    def vector(self, name: str, *shape: int) -> Tensor:
        if len(shape) == 1 and name.endswith("bias"):
            return torch.zeros(shape, device=self._device)
        if len(shape) == 1 and "norm" in name:
            return torch.ones(shape, device=self._device)
        return torch.randn(shape, device=self._device).mul_(shape[-1] ** -0.5 if len(shape) > 1 else 0.1)

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def linear(self, name: str, *shape: int) -> Tensor:
        return self.matrix(name, *shape)

    def matrix(self, name: str, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self._dtype, device=self._device).mul_(shape[-1] ** -0.5)

    def table(self, name: str, *shape: int) -> Tensor:
        """Different experts in every line."""
        first = torch.randint(self._experts, (shape[0], 1), device=self._device)
        return (first + torch.arange(shape[1], device=self._device)) % self._experts

    def experts(self, moe: Moe, hidden: int) -> WorkspaceExperts:
        gate_up = self._packed(moe.experts, 2 * moe.width, hidden)
        return WorkspaceExperts(gate_up, self._packed(moe.experts, hidden, moe.width), self._workspace)

    def _packed(self, experts: int, rows: int, columns: int) -> MxFp4Matrix:
        """Random codes have a root mean square of 2.9; the scales bring a row's length to about 1."""
        codes = torch.empty(experts, rows, columns // 2, dtype=torch.uint8, device=self._device).random_(0, 256)
        middle = 127 - round(math.log2(2.9 * math.sqrt(columns)))
        scale = torch.empty(experts, rows, columns // 32, dtype=torch.uint8, device=self._device)
        return MxFp4Matrix(codes, scale.random_(middle - 1, middle + 2))


def kind(layer: Layer) -> Layer:
    """Layers of one kind take the same time: they differ at most in whose selection they read."""
    attention = layer.attention
    return (
        replace(layer, attention=replace(attention, index_source=0))
        if isinstance(attention, LatentAttention)
        else layer
    )


def kind_name(layer: Layer) -> str:
    """A kind of layer for people."""
    if isinstance(layer.attention, CompressedAttention):
        attention = {0: "window", 4: "selected", 128: "all"}[layer.attention.ratio]
    else:
        attention = "own index" if layer.attention.indexer is not None else "shared index"
    mlp = layer.mlp
    return f"{attention}, {('hash' if mlp.hash_routed else 'moe') if isinstance(mlp, Moe) else 'dense'}"


def shortest_with_all_kinds(spec: ModelSpec) -> int:
    """The number of layers from the first on that have every kind among them."""
    kinds = [kind(layer) for layer in spec.layers]
    return max(kinds.index(one) for one in set(kinds)) + 1


@dataclass(frozen=True)
class Sizes:
    """Bytes of a model on the device."""

    layers: tuple[int, ...]
    ends: int  # embedding, head, last norm
    workspace: int
    working: int  # activations of one step
    cache: int  # of all published layers

    def fitting(self, budget_bytes: int, kinds: int) -> int:
        """How many layers fit, at least `kinds`, the fewest with every kind among them."""
        room, count = budget_bytes - self.ends - self.workspace - self.working, 0
        for layer in self.layers:
            room -= layer + self.cache // len(self.layers)
            count += room >= 0
        return max(count, kinds)

    def __str__(self) -> str:
        layers = Counter(gib(n) for n in self.layers)
        return (
            f"layers {', '.join(f'{count} x {size}' for size, count in layers.items())}; ends {gib(self.ends)}; FP8 workspace "
            f"{gib(self.workspace)}; working memory {gib(self.working)}; cache {gib(self.cache)}"
        )


def sizes_of(spec: ModelSpec, dtype: torch.dtype, layout: CacheLayout, cache_tokens: int, chunk_tokens: int) -> Sizes:
    """From the declared parameters of the whole model."""
    parameters: Mapping[str, Parameter] = declare(spec)
    layers, ends = [0] * len(spec.layers), 0
    per_value = {"vector": 4, "table": 8, "expert": MXFP4_BYTES}
    for name, parameter in parameters.items():
        nbytes = int(prod(parameter.shape) * per_value.get(parameter.kind, dtype.itemsize))
        if name.startswith("layers."):
            layers[int(name.split(".")[1])] += nbytes
        elif not name.startswith("vision."):
            ends += nbytes
    moes = [layer.mlp for layer in spec.layers if isinstance(layer.mlp, Moe)]
    workspace = max(workspace_bytes(moe.experts, moe.width, spec.hidden) for moe in moes)
    # Streams in and out, queries and what becomes of them, routed rows; twice, because eager steps hold old and new.
    row = spec.hidden * spec.streams * 4 + max(layer.attention.heads for layer in spec.layers) * 512 * 6
    row += max(moe.topk * (moe.width + spec.hidden) for moe in moes) * 2
    cache = -(-cache_tokens // layout.page_tokens) * layout.page_bytes + LIVE_ROWS * layout.bytes_per_conversation
    return Sizes(tuple(layers), ends, workspace, 2 * chunk_tokens * row + (1 << 30), cache)


@dataclass(frozen=True)
class RandomModel:
    """The first layers of a published model, with its cache. `whole` is the published model."""

    spec: ModelSpec
    whole: ModelSpec
    transformer: Transformer
    cache: KvCache
    whole_layout: CacheLayout
    sizes: Sizes

    @property
    def device(self) -> torch.device:
        return self.cache.device

    @property
    def held(self) -> Counter[Layer]:
        """How many layers of each kind there are."""
        return Counter(kind(layer) for layer in self.spec.layers)

    @property
    def missing(self) -> Counter[Layer]:
        """How many more the published model has."""
        return Counter(kind(layer) for layer in self.whole.layers) - self.held

    def by_kind(self, per_layer: dict[int, float], calls: int) -> dict[str, float]:
        """Mean of one layer of each kind in one call; `per_layer` is of all calls together."""
        kinds: dict[str, list[float]] = {}
        for number, layer in enumerate(self.spec.layers):
            kinds.setdefault(kind_name(layer), []).append(per_layer[number] / calls)
        return {name: statistics.mean(each) for name, each in kinds.items()}

    def added(self, kinds: dict[str, float]) -> float:
        """What the layers that are not there would take, given one of each kind."""
        return sum(count * kinds[kind_name(layer)] for layer, count in self.missing.items())

    def state_bytes(self, tokens: int, segments: int) -> tuple[float, float]:
        """Bytes of saved state of the layers that are there, and of all published ones."""
        held, whole = (
            tokens * layout.bytes_per_token + segments * layout.bytes_per_conversation
            for layout in (self.cache.layout, self.whole_layout)
        )
        return held, whole


def build_model(
    config: Config, device: torch.device, cache_tokens: int, chunk_tokens: int, budget_bytes: int, layers: int | None
) -> RandomModel:
    """`layers` of the configured model (0: as few as have every kind), or as many as fit into the budget.

    Compact cache; element types as the runtime chooses.
    """
    whole = find_family(config).parse(config)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    whole_layout = declare_cache(whole, dtype, compact=True)
    sizes = sizes_of(whole, dtype, whole_layout, cache_tokens, chunk_tokens)
    fewest = shortest_with_all_kinds(whole)
    count = sizes.fitting(budget_bytes, fewest) if layers is None else max(layers, fewest)
    spec = replace(whole, layers=whole.layers[:count], vision=None)
    experts = max(layer.mlp.experts for layer in spec.layers if isinstance(layer.mlp, Moe))
    with torch.inference_mode():
        transformer = Transformer(spec, RandomWeights(dtype, device, experts))
    layout = declare_cache(spec, dtype, compact=True)
    cache = KvCache(layout, -(-cache_tokens // layout.page_tokens), LIVE_ROWS, device)
    return RandomModel(spec, whole, transformer, cache, whole_layout, sizes)
