"""A numeric check of a checkpoint: its first layers run on random input, the chosen kernels against the reference."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from engine.cache.cache import KvCache
from engine.cache.layout import declare_cache
from engine.checkpoint.directory import Checkpoint
from engine.model.batch import Chunk, build_batch
from engine.model.experts import ExpertCache
from engine.model.loader import CheckpointWeights, LoadedModel, TensorReport, load_model
from engine.model.spec import LatentAttention, ModelSpec
from kernels.choose import OPERATORS, use

TOKENS, DECODE_TOKENS = 96, 4
TOLERANCE = 1e-4  # relative RMS in float32; other paths have their own kernels' tolerances
MOST_LAYERS = 6
MOST_BYTES = 4 << 30


@dataclass
class SelfCheck:
    """What was run and what came of it; times in milliseconds for the layers that were run."""

    layers: int
    tokens: int
    difference: float  # relative RMS between the chosen kernels and the reference
    chosen_ms: float
    reference_ms: float
    decode_ms: float  # one step of the chosen kernels
    faults: list[str] = field(default_factory=list)


def self_check(checkpoint: Checkpoint, spec: ModelSpec, tensors: TensorReport) -> SelfCheck:
    """Run the shortest beginning of the model that has every kind of layer. Raises EngineError kinds."""
    short = replace(spec, layers=spec.layers[: _enough_layers(spec)], vision=None)
    cpu = torch.device("cpu")
    weights = CheckpointWeights(tensors.found, torch.float32, cpu, "mapped", ExpertCache(MOST_BYTES), lambda _: None)
    model = load_model(short, weights)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, spec.vocab, (TOKENS + DECODE_TOKENS,), generator=generator)
    chosen, chosen_ms, decode_ms = _run(model, short, ids)
    with ExitStack() as stack:
        for name in OPERATORS:
            stack.enter_context(use(name, "reference"))
        reference, reference_ms, _ = _run(model, short, ids)
    difference = float((chosen - reference).square().mean().sqrt() / reference.square().mean().sqrt().clamp(min=1e-30))
    check = SelfCheck(len(short.layers), len(ids), difference, chosen_ms, reference_ms, decode_ms)
    if not bool(reference.isfinite().all()):
        check.faults.append("The first layers give numbers that are not finite; the weights are damaged or misread.")
    elif not difference <= TOLERANCE:
        check.faults.append(
            f"The kernels chosen for this machine differ from the reference by {difference:.1e}, more than {TOLERANCE:.0e}."
        )
    return check


def _enough_layers(spec: ModelSpec) -> int:
    """Layers until every kind has been seen, within what a check may take."""
    kinds = []
    for layer in spec.layers:
        attention = layer.attention
        if isinstance(attention, LatentAttention):
            attention = replace(attention, index_source=0)  # which layer's list is shared does not make a kind
        kinds.append((attention, layer.mlp))
    last_new = max(kinds.index(kind) for kind in kinds)
    return min(last_new + 1, MOST_LAYERS)


def _run(model: LoadedModel, spec: ModelSpec, ids: Tensor) -> tuple[Tensor, float, float]:
    """Prefill, then decode a few tokens: logits of all rows, prefill time, time of one decode step."""
    layout = declare_cache(spec, torch.float32)
    cache = KvCache(layout, -(-len(ids) // layout.page_tokens), 1, torch.device("cpu"))
    sequence = cache.open()
    assert sequence is not None
    assert cache.reserve(sequence, len(ids))
    parts, times = [], []
    for part in (ids[:TOKENS], *ids[TOKENS:].split(1)):
        positions = torch.arange(sequence.length, sequence.length + len(part)).expand(3, -1)
        start = time.perf_counter()
        parts.append(model.transformer(build_batch([Chunk(sequence, part, positions, want_logits="all")], cache)))
        times.append(1e3 * (time.perf_counter() - start))
        sequence.length += len(part)
    return torch.cat(parts), times[0], min(times[1:])
