"""Where every byte of a model goes, decided before anything is loaded. A pure function of model, machine and wishes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch

from engine.cache.layout import CacheLayout
from engine.errors import BadRequest, DoesNotFit
from engine.memory.machine import Machine
from engine.model.spec import ModelSpec, Moe
from engine.model.weights import Parameter
from engine.settings import EngineSettings

Tier = Literal["GPU", "RAM", "disk"]
ExpertPlace = Literal["none", "packed", "decoded", "mapped"]
# packed: multiplied from their stored bytes, which are in memory; decoded: all ready to multiply;
# mapped: left in the files and read (or decoded) when a token needs them.
_SHARE_OF_FREE_RAM = 0.8  # the rest stays with the system and other programs
_SHARE_OF_FREE_GPU = 0.92
_LEAST_CACHE_TOKENS = 2048
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
    """Every byte with its place and reason."""

    device: str
    dtype: torch.dtype
    lines: tuple[PlanLine, ...]
    context_tokens: int
    cache_tokens: int
    experts: ExpertPlace
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


@dataclass(frozen=True)
class ExpertFacts:
    """What the plan must know about routed experts: bytes as stored, and whether a kernel multiplies these directly."""

    packed_bytes: int
    packed_kernel: bool
    workspace_bytes: int = 0  # for converting a layer's experts, where the packed kernel is for few tokens only


def plan_memory(
    spec: ModelSpec,
    parameters: Mapping[str, Parameter],
    layout: CacheLayout,
    experts: ExpertFacts,
    machine: Machine,
    wishes: EngineSettings,
    dtype: torch.dtype = torch.float32,
    narrow: Set[str] = frozenset(),
) -> MemoryPlan:
    """Fit a model into one device's memory: dense weights and cache always, experts as well as what is left allows.

    dtype is what the model computes in and keeps its matrices in, but for those named in `narrow`, kept in bfloat16.

    Raises DoesNotFit with the numbers and what would help.
    """
    _check(wishes, spec.context_tokens)
    device = wishes.device or ("cuda" if machine.gpus else "cpu")
    tier: Tier = "GPU" if device.startswith("cuda") else "RAM"
    budget = _budget(device, machine, wishes)
    lines = _fixed_lines(spec, parameters, wishes, dtype, narrow, tier)
    fixed = sum(line.nbytes for line in lines)

    context = min(spec.context_tokens, wishes.context_tokens or spec.context_tokens)
    rows = wishes.max_batch * layout.bytes_per_conversation
    pages, reason = _cache_pages(layout, context, budget - fixed - rows, wishes)
    cache_bytes = pages * layout.page_bytes + rows
    lines.append(PlanLine("KV cache", tier, cache_bytes, reason))
    room = budget - fixed - cache_bytes
    if room < 0:
        raise DoesNotFit(
            f"This model needs {gib(fixed + cache_bytes)} of {tier} for what every token uses, but only {gib(budget)} may be "
            "used; close other programs, ask for fewer --context tokens, or choose a smaller model."
        )
    place, expert_lines, cached, warnings = _expert_lines(parameters, experts, room, tier, dtype)
    cache_tokens = pages * layout.page_tokens
    context = min(context, cache_tokens)
    if context < spec.context_tokens and wishes.context_tokens is None and wishes.cache_tokens is None:
        warnings.append(
            f"The context is limited to {context:,} of the model's {spec.context_tokens:,} tokens by memory."
        )
    every = tuple(lines + expert_lines)
    return MemoryPlan(device, dtype, every, context, cache_tokens, place, cached, budget, tuple(warnings))


def _check(wishes: EngineSettings, context_tokens: int) -> None:
    """Refuse wishes that nothing could fulfil."""
    for name in ("context_tokens", "cache_tokens", "ram_budget_bytes", "prefill_chunk_tokens", "max_batch", "threads"):
        value = getattr(wishes, name)
        if value is not None and value < 1:
            raise BadRequest(f"{name} is {value}; it must be at least 1.")
    context, cache = wishes.context_tokens, wishes.cache_tokens
    if context is not None and context > context_tokens:
        raise BadRequest(
            f"A context of {context:,} tokens was asked for, but this model reads at most {context_tokens:,}."
        )
    if context is not None and cache is not None and cache < context:
        raise BadRequest(
            f"A cache of {cache:,} tokens cannot hold the context of {context:,} tokens that was asked for."
        )
    kind, _, number = (wishes.device or "cpu").partition(":")
    if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise BadRequest(f"The device {wishes.device!r} is not known; use cpu, cuda or cuda:0.")


def _budget(device: str, machine: Machine, wishes: EngineSettings) -> int:
    if not device.startswith("cuda"):
        if wishes.ram_budget_bytes is not None:
            return wishes.ram_budget_bytes
        return int(machine.ram_available_bytes * _SHARE_OF_FREE_RAM)
    index = int(device.partition(":")[2] or 0)
    if index >= len(machine.gpus):
        raise DoesNotFit(f"There is no GPU {device}; this machine has {len(machine.gpus)}.")
    return int(machine.gpus[index].free_bytes * _SHARE_OF_FREE_GPU)


def _size(parameter: Parameter, dtype: torch.dtype, narrow: Set[str] = frozenset()) -> int:
    dtype = torch.bfloat16 if parameter.name in narrow else dtype
    return prod(parameter.shape) * {"vector": 4, "table": 8}.get(parameter.kind, dtype.itemsize)


def _fixed_lines(
    spec: ModelSpec,
    parameters: Mapping[str, Parameter],
    wishes: EngineSettings,
    dtype: torch.dtype,
    narrow: Set[str],
    tier: Tier,
) -> list[PlanLine]:
    dense = [p for p in parameters.values() if p.kind != "expert"]
    vision = sum(_size(p, dtype, narrow) for p in dense if p.name.startswith("vision."))
    rest = sum(_size(p, dtype, narrow) for p in dense if not p.name.startswith("vision."))
    lines = [PlanLine("dense weights", tier, rest, "used by every token")]
    if vision:
        lines.append(PlanLine("vision encoder", tier, vision, "used by every picture"))
    working = _working_bytes(spec, wishes, dtype)
    lines.append(PlanLine("working memory", tier, working, f"{wishes.prefill_chunk_tokens} prompt tokens a step"))
    return lines


def _cache_pages(layout: CacheLayout, context: int, room: int, wishes: EngineSettings) -> tuple[int, str]:
    """Pages of the KV cache and why so many."""
    page = layout.page_tokens
    if wishes.cache_tokens is not None:
        return -(-wishes.cache_tokens // page), "as asked for"
    most = -(-_CONVERSATIONS * context // page)
    fitting = max(room // 4, 0) // max(layout.page_bytes, 1)
    if fitting >= most:
        return most, f"{_CONVERSATIONS} full conversations"
    least = min(context, _LEAST_CACHE_TOKENS) if wishes.context_tokens is None else context
    return max(fitting, -(-least // page)), "at most a quarter of what is left"


def _expert_lines(
    parameters: Mapping[str, Parameter], experts: ExpertFacts, room: int, tier: Tier, dtype: torch.dtype
) -> tuple[ExpertPlace, list[PlanLine], int, list[str]]:
    """Place, lines, bytes of the cache of decoded experts, and warnings."""
    sizes = [_size(p, dtype) for p in parameters.values() if p.kind == "expert"]
    if not sizes:
        return "none", [], 0, []
    decoded, largest = sum(sizes), max(sizes)
    if experts.packed_kernel and experts.packed_bytes <= room:
        return (
            "packed",
            [PlanLine("experts", tier, experts.packed_bytes, "as stored, multiplied without decoding")],
            0,
            [],
        )
    if not experts.packed_kernel and decoded <= room:
        return "decoded", [PlanLine("experts", tier, decoded, "all fit decoded")], 0, []
    on_disk = PlanLine("experts", "disk", experts.packed_bytes, "in the checkpoint files, read when needed")
    if experts.packed_kernel:
        over = gib(experts.packed_bytes - room)
        return (
            "mapped",
            [on_disk],
            0,
            [f"{over} of experts do not fit into RAM and are read from disk again and again."],
        )
    cached = max(room - 4 * largest, 0)
    lines = [on_disk, PlanLine("expert cache", tier, cached, "recently used experts, decoded")]
    return (
        "mapped",
        lines,
        cached,
        [f"{gib(decoded - cached)} of decoded experts do not fit and are decoded when needed."],
    )


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
