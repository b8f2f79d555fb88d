"""What tests of single-token steps share: conversations of random text in caches of their own, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.cache import CachedSequence, KvCache
from engine.cache.layout import declare_cache
from engine.model.batch import Chunk
from tests.engine.family_runner import CPU, Running

FAMILIES = ["hy_v4", "hy_v4_vl", "deepseek_v32", "glm_moe_dsa", "deepseek_v4", "deepseek_v4_vision"]


def another(running: Running) -> Running:
    """The same model with a cache of its own."""
    cache = KvCache(declare_cache(running.spec, torch.float32), 64, 12, CPU)
    return Running(running.checkpoint, running.family, running.spec, running.report, running.model, cache)


def text(running: Running, tokens: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(running.spec.vocab // 2, (tokens,), generator=generator)


def started(running: Running, lengths: Sequence[int]) -> list[CachedSequence]:
    """Conversations with as many tokens read."""
    sequences = []
    for seed, length in enumerate(lengths):
        sequences.append(running.start())
        if length:
            running.read(text(running, length, seed), length, sequences[-1])
    return sequences


def next_chunks(running: Running, sequences: Sequence[CachedSequence], turn: int, turned: int = 0) -> list[Chunk]:
    """A token for each; `turned` tells rope positions apart from places, as behind a picture."""
    chunks = []
    for number, sequence in enumerate(sequences):
        assert running.cache.reserve(sequence, sequence.length + 1)
        place = torch.tensor([sequence.length - turned * (number % 2)]).clamp(min=0)
        chunks.append(Chunk(sequence, text(running, 1, 97 * turn + sequence.row), place.expand(3, -1)))
    return chunks


def grown(sequences: Sequence[CachedSequence]) -> None:
    for sequence in sequences:
        sequence.length += 1


def same_state(first: Running, second: Running, sequences: Sequence[CachedSequence]) -> None:
    for sequence in sequences:
        ours, theirs = (r.cache.export_rows(sequence, 0, sequence.length) for r in (first, second))
        for name, rows in ours.items():
            assert torch.equal(rows, theirs[name]), f"{name} of {sequence.length} tokens"
