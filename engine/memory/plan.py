"""Where every byte of a model goes, decided before anything is loaded. A pure function of model, machine and wishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch

from engine.cache.layout import CacheLayout
from engine.errors import DoesNotFit
from engine.memory.machine import Machine
from engine.model.spec import ModelSpec, Moe
from engine.model.weights import Parameter
from engine.settings import EngineSettings

Tier = Literal["GPU", "RAM", "disk"]
_SHARE_OF_FREE_RAM = 0.8  # the rest stays with the system and other programs
_CONVERSATIONS = 4  # how many full contexts the cache holds at most unless a person asks for more


@dataclass(frozen=True)
class PlanLine:
    """One use of memory."""

    label: str
    tier: Tier
    nbytes: int
    reason: str


@dataclass(frozen=True)
class MemoryPlan:
    """Every byte with its place and reason. `decode_experts`: all experts are kept ready to multiply."""

    device: str
    dtype: torch.dtype
    lines: tuple[PlanLine, ...]
    context_tokens: int
    cache_tokens: int
    decode_experts: bool
    expert_cache_bytes: int
    budget_bytes: int
    warnings: tuple[str, ...] = ()

    def total_bytes(self, tier: Tier | None = None) -> int:
        """Bytes in one tier, or in fast memory (GPU and RAM) altogether."""
        return sum(line.nbytes for line in self.lines if line.tier == tier or (tier is None and line.tier != "disk"))

    def __str__(self) -> str:
        width = max(len(line.label) for line in self.lines)
        rows = [f"{line.label:<{width}}  {line.tier:<4}  {gib(line.nbytes):>11}  {line.reason}" for line in self.lines]
        for tier in ("GPU", "RAM", "disk"):
            if any(line.tier == tier for line in self.lines):
                rows.append(f"{'total':<{width}}  {tier:<4}  {gib(self.total_bytes(tier)):>11}")
        rows.append(f"context {self.context_tokens:,} tokens, all conversations together {self.cache_tokens:,} tokens")
        return "\n".join(rows + [f"warning: {w}" for w in self.warnings])


def gib(nbytes: int) -> str:
    """A byte count for people."""
    if nbytes >= 1 << 30:
        return f"{nbytes / (1 << 30):,.2f} GiB"
    return f"{nbytes / (1 << 20):,.1f} MiB"


def plan_memory(
    spec: ModelSpec,
    parameters: Mapping[str, Parameter],
    layout: CacheLayout,
    packed_expert_bytes: int,
    machine: Machine,
    wishes: EngineSettings,
    dtype: torch.dtype = torch.float32,
) -> MemoryPlan:
    """Fit a model into one device's memory: dense weights always, experts decoded if they fit, else read from disk.

    Raises DoesNotFit with the numbers and what would help.
    """
    device = wishes.device or ("cuda" if machine.gpus else "cpu")
    tier: Tier = "GPU" if device.startswith("cuda") else "RAM"
    if tier == "GPU":
        index = int(device.partition(":")[2] or 0)
        if index >= len(machine.gpus):
            raise DoesNotFit(f"There is no GPU {device}; this machine has {len(machine.gpus)}.")
        budget = int(machine.gpus[index].free_bytes * 0.92)
    else:
        budget = wishes.ram_budget_bytes or int(machine.ram_available_bytes * _SHARE_OF_FREE_RAM)

    def size(parameter: Parameter) -> int:
        item = {"vector": 4, "table": 8}.get(parameter.kind, dtype.itemsize)
        return prod(parameter.shape) * item

    dense = sum(size(p) for p in parameters.values() if p.kind != "expert" and not p.name.startswith("vision."))
    vision = sum(size(p) for p in parameters.values() if p.name.startswith("vision."))
    experts = sum(size(p) for p in parameters.values() if p.kind == "expert")
    working = _working_bytes(spec, wishes, dtype)
    lines = [PlanLine("dense weights", tier, dense, "used by every token")]
    if vision:
        lines.append(PlanLine("vision encoder", tier, vision, "used by every picture"))
    lines.append(PlanLine("working memory", tier, working, f"{wishes.prefill_chunk_tokens} prompt tokens a step"))
    fixed = dense + vision + working

    context = min(spec.context_tokens, wishes.context_tokens or spec.context_tokens)
    page = layout.page_tokens
    per_page = layout.page_bytes
    rows = wishes.max_batch * layout.bytes_per_conversation
    room = budget - fixed - rows
    if wishes.cache_tokens is not None:
        cache_tokens, reason = wishes.cache_tokens, "as asked for"
    else:
        most = _CONVERSATIONS * context
        cache_tokens, reason = (
            min(most, max(room // 4, 0) // max(per_page, 1) * page),
            "at most a quarter of what is left",
        )
        cache_tokens = max(cache_tokens, min(context, 2048))
        reason = f"{_CONVERSATIONS} full conversations" if cache_tokens == most else reason
    pages = -(-cache_tokens // page)
    cache_bytes = pages * per_page + rows
    context = min(context, pages * page)
    lines.append(PlanLine("KV cache", tier, cache_bytes, reason))
    room = budget - fixed - cache_bytes
    if room < 0:
        raise DoesNotFit(
            f"This model needs {gib(fixed + cache_bytes)} of {tier} for what every token uses, but only {gib(budget)} may be "
            f"used; close other programs, ask for fewer --context tokens, or choose a smaller model."
        )
    largest = max((size(p) for p in parameters.values() if p.kind == "expert"), default=0)
    decoded = experts <= room
    cached = 0
    if experts and decoded:
        lines.append(PlanLine("experts", tier, experts, "all fit decoded: fastest"))
    elif experts:
        cached = max(room - 4 * largest, 0)
        lines.append(PlanLine("experts", "disk", packed_expert_bytes, "packed in the checkpoint, read when needed"))
        lines.append(PlanLine("expert cache", tier, cached, "recently used experts, decoded"))
    warnings = []
    if experts and not decoded:
        warnings.append(f"{gib(experts - cached)} of decoded experts do not fit and are decoded again when needed.")
    if context < spec.context_tokens and wishes.context_tokens is None:
        warnings.append(
            f"The context is limited to {context:,} of the model's {spec.context_tokens:,} tokens by memory."
        )
    return MemoryPlan(device, dtype, tuple(lines), context, pages * page, decoded, cached, budget, tuple(warnings))


def _working_bytes(spec: ModelSpec, wishes: EngineSettings, dtype: torch.dtype) -> int:
    """Activations of one step: residual streams, the widest layer's intermediates, logits."""
    tokens = wishes.prefill_chunk_tokens + wishes.max_batch
    widest = max(
        layer.mlp.topk * layer.mlp.width * 3 + layer.mlp.shared_width * 3
        if isinstance(layer.mlp, Moe)
        else layer.mlp.width * 3
        for layer in spec.layers
    )
    heads = max(layer.attention.heads for layer in spec.layers)
    rows = spec.hidden * spec.streams * 4 + widest + heads * 512 * 3
    gathered = 64 << 20  # bounded buffers of selection and attention
    return tokens * rows * max(dtype.itemsize, 4) + wishes.max_batch * spec.vocab * 4 * 3 + gathered
