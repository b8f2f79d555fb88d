"""Opens a checkpoint: family, proof of completeness, memory plan, weights, cache. The order is the order of memory use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.cache.cache import KvCache
from engine.cache.layout import CacheLayout, declare_cache
from engine.chat.prompt import PromptBuilder
from engine.chat.template import ChatTemplate
from engine.chat.tokens import Tokens
from engine.checkpoint.directory import Checkpoint
from engine.errors import BadCheckpoint
from engine.families import find_family
from engine.families.base import Config, Family
from engine.generation.defaults import FILE as GENERATION_FILE
from engine.generation.defaults import check_defaults
from engine.memory.expert_plan import ExpertFacts, OnGpu
from engine.memory.machine import Machine, probe_machine
from engine.memory.plan import MemoryPlan, cache_rows, plan_memory
from engine.model.expert_groups import ExpertShape
from engine.model.experts import ExpertCache
from engine.model.loader import (
    CheckpointWeights,
    LoadedModel,
    TensorReport,
    declare,
    load_model,
    match_tensors,
    narrow_linears,
)
from engine.model.spec import ModelSpec, Moe
from engine.model.spread import ExpertUse, SpreadMemory
from engine.model.weights import Parameter
from engine.model.workspace import Fp8Workspace
from engine.settings import EngineSettings
from engine.vision.reader import ImageReader
from kernels.choose import can_run


@dataclass(frozen=True)
class LoadProgress:
    """How far loading is; `stage` is a short phrase for the person who waits."""

    stage: str
    done_bytes: int
    total_bytes: int


OnProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True)
class Described:
    """A checkpoint that has been checked and planned but not loaded."""

    checkpoint: Checkpoint
    family: Family
    spec: ModelSpec
    tensors: TensorReport
    layout: CacheLayout
    plan: MemoryPlan

    @property
    def num_parameters(self) -> int:
        return sum(_count(p.shape) for p in declare(self.spec).values() if p.kind != "table")


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def describe(path: Path, settings: EngineSettings, machine: Machine | None = None) -> Described:
    """Read headers and config, prove that every tensor is there, and plan memory. Loads nothing."""
    checkpoint = Checkpoint(path)
    family = find_family(checkpoint.config)
    spec = family.parse(checkpoint.config)
    tensors = match_tensors(checkpoint, family, spec)
    tensors.require_complete(checkpoint)
    machine = machine or probe_machine()
    on_gpu = (settings.device or ("cuda" if machine.gpus else "cpu")).startswith("cuda")
    compact = settings.cache_layout == "compact" or (settings.cache_layout is None and on_gpu)
    dtype = torch.bfloat16 if on_gpu and compact else torch.float32
    layout = declare_cache(spec, dtype, compact)
    parameters = declare(spec)
    plan = plan_memory(
        spec,
        parameters,
        layout,
        expert_facts(spec, tensors, parameters, on_gpu, on_gpu and not compact),
        machine,
        settings,
        dtype,
        narrow_linears(tensors.found, parameters, dtype, on_gpu),
    )
    return Described(checkpoint, family, spec, tensors, layout, plan)


def expert_facts(
    spec: ModelSpec, tensors: TensorReport, parameters: Mapping[str, Parameter], on_gpu: bool, exact: bool
) -> ExpertFacts:
    """How the experts of a checkpoint are stored, and whether this machine multiplies them as they are.

    exact: kernels that round activations, as those of GPUs do, must not be used.
    """
    stored = [s for name, s in tensors.found.items() if parameters[name].kind == "expert"]
    packed = sum(s.nbytes for s in stored)
    if not stored or exact or any(s.format != "mxfp4" for s in stored):
        return ExpertFacts(packed, False)
    if not on_gpu:
        return ExpertFacts(packed, can_run("packed_experts", "cpu"))
    sizes = gpu_experts(spec)
    if sizes is None or not can_run("mxfp4_experts", "triton"):
        return ExpertFacts(packed, False)
    return ExpertFacts(packed, True, sizes)


def gpu_experts(spec: ModelSpec) -> OnGpu | None:
    """The sizes of a model's experts, if these are sizes that the GPU's kernels take and the same in all layers."""
    layers = [layer.mlp for layer in spec.layers if isinstance(layer.mlp, Moe)]
    shapes = {(ExpertShape(moe.width, spec.hidden), moe.experts) for moe in layers}
    if len(shapes) != 1 or any(size % 128 for size in (layers[0].width, spec.hidden)):
        return None
    shape, experts = shapes.pop()
    return OnGpu(shape, len(layers), experts, max(moe.topk for moe in layers))


@dataclass(frozen=True)
class Runtime:
    """Everything that serves requests of one model."""

    described: Described
    model: LoadedModel
    cache: KvCache
    tokens: Tokens
    prompts: PromptBuilder
    defaults: Config  # generation_config.json
    eos_ids: frozenset[int]
    expert_use: ExpertUse | None = None  # counted where experts are spread over GPU, RAM and disk


def open_runtime(path: Path, settings: EngineSettings, on_progress: OnProgress | None = None) -> Runtime:
    """Load a checkpoint as planned. Raises BadCheckpoint, UnsupportedModel, DoesNotFit."""
    report = on_progress or (lambda _: None)
    report(LoadProgress("checking the files", 0, 1))
    described = describe(path, settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    tokens = Tokens(path)
    prompts = _prompt_builder(described, tokens)
    defaults = described.checkpoint.optional_json(GENERATION_FILE)
    eos = described.spec.eos_ids | check_defaults(defaults)
    total = sum(s.nbytes for name, s in described.tensors.found.items() if _loaded_at_once(name, described.plan))
    done = 0

    def count(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        report(LoadProgress("reading weights", done, total))

    plan = described.plan
    device = torch.device(plan.device)
    spread = None
    if plan.shares is not None:
        sizes = gpu_experts(described.spec)
        assert sizes is not None
        spread = SpreadMemory(plan.shares, sizes.shape, device)
    weights = CheckpointWeights(
        described.tensors.found,
        plan.dtype,
        device,
        plan.experts,
        ExpertCache(plan.expert_cache_bytes),
        count,
        workspace=Fp8Workspace(device, plan.workspace_group) if device.type == "cuda" else None,
        spread=spread,
    )
    model = load_model(described.spec, weights)
    pages = plan.cache_tokens // described.layout.page_tokens
    cache = KvCache(described.layout, pages, cache_rows(described.layout, settings), device)
    report(LoadProgress("ready", total, total))
    use = None if spread is None else spread.use
    return Runtime(described, model, cache, tokens, prompts, defaults, eos, use)


def _loaded_at_once(name: str, plan: MemoryPlan) -> bool:
    return plan.experts != "mapped" or ".experts." not in name


def image_reader(described: Described) -> ImageReader | None:
    """The family's picture rules with this checkpoint's numbers."""
    make = described.family.image_reader
    if make is None or described.spec.vision is None:
        return None
    checkpoint = described.checkpoint
    return make(described.spec, checkpoint.config, checkpoint.optional_json("preprocessor_config.json"))


def _prompt_builder(described: Described, tokens: Tokens) -> PromptBuilder:
    checkpoint = described.checkpoint
    config = checkpoint.optional_json("tokenizer_config.json")
    special = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token", "image_token"):
        value = config.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            special[key] = text
    source = checkpoint.optional_text("chat_template.jinja") or config.get("chat_template")
    if isinstance(source, list):  # several named templates
        named = [t for t in source if isinstance(t, dict)]
        source = next((t.get("template") for t in named if t.get("name") == "default"), 0)
    if source is not None and not isinstance(source, str):
        raise BadCheckpoint("chat_template in tokenizer_config.json is not a template.")
    template = ChatTemplate(source, special) if source else None
    if tokens.vocab_size > described.spec.vocab and max(tokens.added.values(), default=0) >= described.spec.vocab:
        raise BadCheckpoint(
            f"tokenizer.json has ids up to {max(tokens.added.values())}, but the model's vocabulary has {described.spec.vocab}."
        )
    return PromptBuilder(tokens, described.family.chat, template, image_reader(described), described.spec.image_token)
