"""Collects the Day-0 report of one checkpoint. Every part is attempted; what fails becomes a sentence, not an end."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch

from engine.cache.layout import declare_cache
from engine.checkpoint.directory import Checkpoint
from engine.errors import EngineError
from engine.families import find_family
from engine.families.base import Family
from engine.memory.machine import Machine, probe_machine
from engine.memory.plan import ExpertFacts, plan_memory
from engine.model.loader import TensorReport, declare, match_tensors, narrow_linears
from engine.model.spec import CompressedAttention, LatentAttention, ModelSpec, Moe, PlainResidual
from engine.report.selfcheck import SelfCheck, self_check
from engine.report.unknown import Nearest, nearest_family
from engine.runtime import expert_facts
from engine.settings import EngineSettings
from kernels.choose import OPERATORS, operator_table


@dataclass(frozen=True)
class OperatorLine:
    """One operator the model needs; each kind is "yes", "no" (does not exist) or why it cannot run here."""

    name: str
    reference: str
    cpu: str
    triton: str


@dataclass
class CheckReport:
    """Everything `check` prints. `problems` are sentences; the model would run if there are none."""

    model: str
    family: str | None = None
    why: str = ""
    parameters: int = 0
    layers: dict[str, int] = field(default_factory=dict)
    operators: list[OperatorLine] = field(default_factory=list)
    tensors: dict[str, int] = field(default_factory=dict)
    tensor_examples: dict[str, list[str]] = field(default_factory=dict)
    bytes_by_kind: dict[str, int] = field(default_factory=dict)
    context_tokens: int = 0
    kv_bytes_per_token: float = 0.0
    kv_bytes_per_conversation: int = 0
    memory: str = ""
    self_check: SelfCheck | None = None
    nearest: Nearest | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def would_run(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Plain data for machines."""
        return {**asdict(self), "would_run": self.would_run}


def check_model(path: Path, settings: EngineSettings | None = None, machine: Machine | None = None) -> CheckReport:
    """Examine a checkpoint directory. Raises BadCheckpoint only when there is nothing to examine."""
    settings, machine = settings or EngineSettings(), machine or probe_machine()
    checkpoint = Checkpoint(path)
    report = CheckReport(path.resolve().name)
    try:
        family = find_family(checkpoint.config)
        report.family = family.name
        report.why = f"config.json has model_type {checkpoint.config['model_type']!r}"
        spec = family.parse(checkpoint.config)
    except EngineError as problem:
        report.problems.append(str(problem))
        report.nearest = nearest_family(checkpoint)
        return report
    _describe(report, spec)
    _operators(report, spec, machine)
    tensors = _tensors(report, checkpoint, family, spec)
    _memory(report, spec, tensors, settings, machine)
    if tensors is not None and not report.problems:
        try:
            report.self_check = self_check(checkpoint, spec, tensors)
            report.problems += report.self_check.faults
        except EngineError as problem:
            report.problems.append(str(problem))
    return report


def layer_kinds(spec: ModelSpec) -> dict[str, int]:
    """How many layers use each kind of attention, feed-forward and residual, in words."""
    kinds: Counter[str] = Counter()
    for layer in spec.layers:
        attention = layer.attention
        if isinstance(attention, LatentAttention):
            own = "own index" if attention.indexer else "shared index"
            kinds[f"latent attention, {own}"] += 1
        elif isinstance(attention, CompressedAttention):
            kind = f"window {attention.window_tokens}"
            if attention.ratio:
                kind += f" + 1/{attention.ratio} entries, {'selected' if attention.indexer else 'all read'}"
            kinds[kind] += 1
        if isinstance(layer.mlp, Moe):
            kinds[
                f"experts {layer.mlp.topk} of {layer.mlp.experts}{', by token id' if layer.mlp.hash_routed else ''}"
            ] += 1
        else:
            kinds["dense feed-forward"] += 1
        kinds[
            "plain residual"
            if isinstance(layer.residual, PlainResidual)
            else f"{layer.residual.streams} residual streams"
        ] += 1
    return dict(kinds)


def _describe(report: CheckReport, spec: ModelSpec) -> None:
    report.parameters = sum(prod(p.shape) for p in declare(spec).values() if p.kind != "table")
    report.layers = layer_kinds(spec)
    report.context_tokens = spec.context_tokens


def needed_packages(spec: ModelSpec) -> list[str]:
    """Folders under kernels/ that this model's forward pass uses."""
    needed = {"cache_rows", "formats", "linear", "norm", "rope", "sampling", "sparse_attention", "swiglu"}
    for layer in spec.layers:
        attention = layer.attention
        if attention.indexer is not None:
            needed.add("index_select")
        if isinstance(attention, CompressedAttention) and attention.ratio:
            needed.add("compressor")
        if isinstance(layer.mlp, Moe):
            needed |= {"router", "experts"}
        if not isinstance(layer.residual, PlainResidual):
            needed.add("hyper_connection")
    return sorted(needed)


def _operators(report: CheckReport, spec: ModelSpec, machine: Machine) -> None:
    def word(state: str | None) -> str:
        return "no" if state is None else (state or "yes")

    rows = {row.name: row for row in operator_table()}
    homes = {name: next(iter(OPERATORS[name].implementations.values())).module.split(".")[1] for name in rows}
    for package in needed_packages(spec):
        names = [name for name, home in homes.items() if home == package]
        for name in names:
            row = rows[name]
            report.operators.append(OperatorLine(name, word(row.reference), word(row.cpu), word(row.triton)))
            if not any(state == "" for state in (row.reference, row.cpu, row.triton)):
                report.problems.append(f"The operator {name} has no implementation that runs on this machine.")
        if not names:
            report.operators.append(OperatorLine(package, "yes", "no", "no"))


def _tensors(report: CheckReport, checkpoint: Checkpoint, family: Family, spec: ModelSpec) -> TensorReport | None:
    try:
        tensors = match_tensors(checkpoint, family, spec)
    except EngineError as problem:
        report.problems.append(str(problem))
        return None
    groups = {
        "missing": list(tensors.missing.values()),
        "surplus": tensors.surplus,
        "ignored": tensors.ignored,
    }
    report.tensors = {"needed": len(tensors.found) + len(tensors.missing), "found": len(tensors.found)}
    report.tensors |= {name: len(group) for name, group in groups.items()} | {"wrong": len(tensors.wrong)}
    report.tensor_examples = {name: group[:5] for name, group in groups.items() if group}
    if tensors.wrong:
        report.tensor_examples["wrong"] = tensors.wrong[:5]
    sizes: Counter[str] = Counter()
    parameters = declare(spec)
    for name, stored in tensors.found.items():
        place = (
            "experts" if parameters[name].kind == "expert" else ("vision" if name.startswith("vision.") else "dense")
        )
        kind = stored.format if stored.format in ("fp8", "mxfp4") else str(stored.codes.dtype).removeprefix("torch.")
        sizes[f"{place} {kind}"] += stored.nbytes
    report.bytes_by_kind = dict(sorted(sizes.items()))
    try:
        tensors.require_complete(checkpoint)
    except EngineError as problem:
        report.problems.append(str(problem))
    return tensors


def _memory(
    report: CheckReport, spec: ModelSpec, tensors: TensorReport | None, settings: EngineSettings, machine: Machine
) -> None:
    layout, parameters = declare_cache(spec, torch.float32), declare(spec)
    report.kv_bytes_per_token = layout.bytes_per_token
    report.kv_bytes_per_conversation = layout.bytes_per_conversation
    on_gpu = (settings.device or ("cuda" if machine.gpus else "cpu")).startswith("cuda")
    facts = (
        ExpertFacts(0, False)
        if tensors is None
        else expert_facts(spec, tensors, parameters, on_gpu, settings.cache_layout == "exact" and on_gpu)
    )
    narrow = narrow_linears({} if tensors is None else tensors.found, parameters, torch.float32, on_gpu)
    try:
        report.memory = str(plan_memory(spec, parameters, layout, facts, machine, settings, narrow=narrow))
    except EngineError as problem:
        report.memory = str(problem)
        report.problems.append(str(problem))
