"""Runs a made checkpoint through the engine's model in float32, in chunks, and names results like the expected ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from engine.cache.cache import CachedSequence, KvCache
from engine.cache.layout import declare_cache
from engine.checkpoint.directory import Checkpoint
from engine.families import find_family
from engine.families.base import Family
from engine.model.batch import Chunk, Trace, build_batch
from engine.model.experts import ExpertCache
from engine.model.loader import CheckpointWeights, LoadedModel, TensorReport, load_model, match_tensors
from engine.model.spec import ModelSpec

CPU = torch.device("cpu")
Rows = tuple[Tensor, Tensor]


@contextmanager
def one_thread() -> Iterator[None]:
    """Tiny matrices are faster on one thread, above all when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(eq=False)
class Running:
    """A loaded checkpoint and a cache for a few conversations."""

    checkpoint: Checkpoint
    family: Family
    spec: ModelSpec
    report: TensorReport
    model: LoadedModel
    cache: KvCache
    trace: Trace | None = None
    images: Rows | None = None  # embedding rows int64 [m] of a prompt and their values [m, H]
    positions: Tensor | None = None  # rope positions int64 [3, T] if they are not 0, 1, 2 ...
    open: list[CachedSequence] = field(default_factory=list)

    def start(self) -> CachedSequence:
        sequence = self.cache.open()
        assert sequence is not None
        self.open.append(sequence)
        return sequence

    def chunk(self, sequence: CachedSequence, ids: Tensor, start: int, stop: int, want: str = "all") -> Chunk:
        """Tokens start..stop of a prompt; `start` must be what the sequence holds."""
        assert start == sequence.length and self.cache.reserve(sequence, stop)
        known = torch.arange(stop).expand(3, -1) if self.positions is None else self.positions
        rows = None
        if self.images is not None:
            inside = (self.images[0] >= start) & (self.images[0] < stop)
            if bool(inside.any()):
                rows = self.images[0][inside] - start, self.images[1][inside]
        return Chunk(sequence, ids[start:stop], known[:, start:stop], None, rows, want)

    def step(self, chunks: Sequence[Chunk]) -> Tensor:
        """One forward pass; the sequences are longer afterwards."""
        logits = self.model.transformer(build_batch(chunks, self.cache, self.trace))
        for chunk in chunks:
            chunk.sequence.length += len(chunk.token_ids)
        return logits

    def read(self, ids: Tensor, sizes: int | Sequence[int], sequence: CachedSequence | None = None) -> Tensor:
        """Logits [T, V] of a prompt read in chunks of these sizes, the last size repeated."""
        own = sequence or self.start()
        pending = [sizes] if isinstance(sizes, int) else list(sizes)
        parts = []
        while own.length < len(ids):
            stop = min(len(ids), own.length + (pending.pop(0) if len(pending) > 1 else pending[0]))
            parts.append(self.step([self.chunk(own, ids, own.length, stop)]))
        if sequence is None:
            self.close(own)
        return torch.cat(parts)

    def continue_greedily(self, sequence: CachedSequence, logits: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Ids int64 [steps] and logits [steps, V], beginning with the given last logits of the prompt."""
        rows = [logits]
        ids = [int(logits.argmax())]
        while len(ids) < steps:
            assert self.cache.reserve(sequence, sequence.length + 1)
            place = torch.tensor([sequence.length]).expand(3, 1)
            rows.append(self.step([Chunk(sequence, torch.tensor(ids[-1:]), place)])[0])
            ids.append(int(rows[-1].argmax()))
        return torch.tensor(ids), torch.stack(rows)

    def close(self, sequence: CachedSequence) -> None:
        self.open.remove(sequence)
        self.cache.close(sequence)
        self.cache.check_integrity()

    @contextmanager
    def traced(self) -> Iterator[Trace]:
        self.trace = Trace()
        try:
            yield self.trace
        finally:
            self.trace = None


def load_running(
    path: Path, pages: int = 24, rows: int = 6, change: Callable[[ModelSpec], ModelSpec] | None = None
) -> Running:
    """Open, prove complete, load in float32; `change` may falsify the description first."""
    checkpoint = Checkpoint(path)
    family = find_family(checkpoint.config)
    spec = family.parse(checkpoint.config)
    if change is not None:
        spec = change(spec)
    report = match_tensors(checkpoint, family, spec)
    report.require_complete(checkpoint)
    weights = CheckpointWeights(report.found, torch.float32, CPU, "decoded", ExpertCache(0), lambda _: None)
    cache = KvCache(declare_cache(spec, torch.float32), pages, rows, CPU)
    return Running(checkpoint, family, spec, report, load_model(spec, weights), cache)


def traced_tensors(trace: Trace, probe_rows: Tensor) -> dict[str, Tensor]:
    """What a trace of one whole prompt holds, under the names of the expected tensors."""
    tensors: dict[str, Tensor] = {}
    for layer, parts in trace.topk.items():
        widest = max(part.shape[1] for part in parts)
        padded = [torch.nn.functional.pad(part, (0, widest - part.shape[1]), value=-1) for part in parts]
        tensors[f"topk.{layer}"] = torch.cat(padded)
    for layer, chosen in trace.router.items():
        ids, weights = torch.cat([ids for ids, _ in chosen]), torch.cat([weights for _, weights in chosen])
        order = ids.argsort(-1)
        tensors[f"router.{layer}.ids"] = ids.gather(-1, order)
        tensors[f"router.{layer}.weights"] = weights.gather(-1, order)
    for layer, streams in trace.layer_out.items():
        tensors[f"layer_out.{layer}"] = torch.cat(streams)[probe_rows].squeeze(1)
    tensors["final_hidden"] = torch.cat(trace.final_hidden)
    return tensors


@contextmanager
def replaced(owner: object, name: str, change: Callable[..., object]) -> Iterator[None]:
    """Put `change(original, *arguments)` in the place of a function of a module or class."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **named: change(original, *arguments, **named))
    try:
        yield
    finally:
        setattr(owner, name, original)
