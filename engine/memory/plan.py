"""Where every byte of a model goes, decided before anything is loaded. A pure function of model, machine and wishes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from math import prod

import torch

from engine.cache.layout import CacheLayout
from engine.errors import BadRequest, DoesNotFit
from engine.memory.expert_plan import ExpertFacts, ExpertPlace, Shares, place_experts
from engine.memory.lines import PlanLine, Tier, gib, gib_allowed, gib_needed
from engine.memory.machine import Machine
from engine.model.spec import ModelSpec, Moe
from engine.model.weights import Parameter
from engine.settings import EngineSettings

_SHARE_OF_FREE_RAM = 0.8  # the rest stays with the system and other programs
_SHARE_OF_FREE_GPU = 0.92
_LEAST_CACHE_TOKENS = 2048
PREFILL_CHUNK_TOKENS: dict[Tier, int] = {
    "RAM": 256,  # fills two cores, and a person who stops waits for one chunk at most
    "GPU": 2048,  # each chunk converts or fetches nearly all experts of every layer, however few its tokens are
}
_CONVERSATIONS = 4  # how many full contexts the cache holds at most unless a person asks for more


@dataclass(frozen=True)
class MemoryPlan:
    """Every byte with its place and reason."""

    device: str
    dtype: torch.dtype
    lines: tuple[PlanLine, ...]
    context_tokens: int
    cache_tokens: int
    prefill_chunk_tokens: int
    experts: ExpertPlace
    expert_cache_bytes: int
    budget_bytes: int  # of the device that computes
    ram_budget_bytes: int
    warnings: tuple[str, ...] = ()
    workspace_group: int | None = None  # see ExpertPlan
    shares: Shares | None = None  # of spread experts

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
    """Fit a model into a device's memory: dense weights and cache always, experts as well as what is left allows.

    Experts that a GPU has no room for go to RAM, which has a budget of its own, and what is over stays on disk.

    dtype is what the model computes in and keeps its matrices in, but for those named in `narrow`, kept in bfloat16.

    Raises DoesNotFit with the numbers and what would help.
    """
    _check(wishes, spec.context_tokens)
    device = wishes.device or ("cuda" if machine.gpus else "cpu")
    tier: Tier = "GPU" if device.startswith("cuda") else "RAM"
    ram = int(machine.ram_available_bytes * _SHARE_OF_FREE_RAM)
    if wishes.ram_budget_bytes is not None:
        ram = wishes.ram_budget_bytes
    budget = _gpu_budget(device, machine) if tier == "GPU" else ram
    chunk = wishes.prefill_chunk_tokens or PREFILL_CHUNK_TOKENS[tier]
    lines = _fixed_lines(spec, parameters, wishes, dtype, narrow, tier, chunk)
    fixed = sum(line.nbytes for line in lines)

    context = min(spec.context_tokens, wishes.context_tokens or spec.context_tokens)
    rows = cache_rows(layout, wishes) * layout.bytes_per_conversation
    pages, reason = _cache_pages(layout, context, budget - fixed - rows, wishes)
    cache_bytes = pages * layout.page_bytes + rows
    lines.append(PlanLine("KV cache", tier, cache_bytes, reason))
    room = budget - fixed - cache_bytes
    least = experts.on_gpu.least_bytes if experts.on_gpu is not None else 0
    if room < least:
        raise DoesNotFit(
            f"This model needs {gib_needed(fixed + cache_bytes + least)} of {tier} for what every token uses, but only "
            f"{gib_allowed(budget)} may be used; close other programs, ask for fewer --context tokens, "
            f"{'try --device cpu, ' if tier == 'GPU' else ''}or choose a smaller model."
        )
    decoded = [_size(p, dtype) for p in parameters.values() if p.kind == "expert"]
    found = place_experts(experts, decoded, room, ram, tier)
    warnings = list(found.warnings)
    cache_tokens = pages * layout.page_tokens
    context = min(context, cache_tokens)
    if context < spec.context_tokens and wishes.context_tokens is None and wishes.cache_tokens is None:
        warnings.append(
            f"The context is limited to {context:,} of the model's {spec.context_tokens:,} tokens by memory."
        )
    return MemoryPlan(
        device, dtype, (*lines, *found.lines), context, cache_tokens, chunk, found.place, found.cache_bytes, budget, ram,
        tuple(warnings), found.workspace_group, found.shares,
    )  # fmt: skip


def cache_rows(layout: CacheLayout, wishes: EngineSettings) -> int:
    """How many conversations the cache holds at once: as many again as are answered, where each costs memory."""
    return 4096 if layout.rewindable else 2 * wishes.max_batch


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


def _gpu_budget(device: str, machine: Machine) -> int:
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
    chunk: int,
) -> list[PlanLine]:
    dense = [p for p in parameters.values() if p.kind != "expert"]
    vision = sum(_size(p, dtype, narrow) for p in dense if p.name.startswith("vision."))
    rest = sum(_size(p, dtype, narrow) for p in dense if not p.name.startswith("vision."))
    lines = [PlanLine("dense weights", tier, rest, "used by every token")]
    if vision:
        lines.append(PlanLine("vision encoder", tier, vision, "used by every picture"))
    working = _working_bytes(spec, chunk, wishes, dtype)
    lines.append(PlanLine("working memory", tier, working, f"{chunk} prompt tokens a step"))
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


def _working_bytes(spec: ModelSpec, chunk: int, wishes: EngineSettings, dtype: torch.dtype) -> int:
    """Activations of one step: residual streams, the widest layer's intermediates, logits."""
    tokens = chunk + wishes.max_batch
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
