"""One step of the scheduler as forward passes: its chunks, and which of them a recorded step computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.cache.cache import KvCache
from engine.chat.prompt import ImageSpan
from engine.errors import BadRequest
from engine.generation.request import Request
from engine.memory.plan import MemoryPlan
from engine.model.batch import Chunk, build_batch
from engine.model.step_graphs import CudaRecorder, StepGraphs
from engine.model.transformer import Transformer


def chunk_of(request: Request, stop: int, pictures: Callable[[ImageSpan], Tensor]) -> Chunk:
    """Tokens fed..stop of a request, with the picture rows that fall into them."""
    start, prompt, sequence = request.fed, request.prompt, request.conversation.sequence
    assert sequence is not None
    ids, want = torch.tensor(request.tokens[start:stop]), "last" if stop == len(request.tokens) else "none"
    if start >= len(prompt):
        offset = prompt.next_position - len(prompt)
        return Chunk(sequence, ids, torch.arange(start + offset, stop + offset).expand(3, -1), want_logits=want)
    known = prompt.rope_positions[:, start : min(stop, len(prompt))]
    if stop > len(prompt):
        offset = prompt.next_position - len(prompt)
        known = torch.cat([known, torch.arange(prompt.next_position, stop + offset).expand(3, -1)], dim=1)
    return Chunk(
        sequence=sequence,
        token_ids=ids,
        rope_positions=known,
        is_image=prompt.is_image(start, stop) if prompt.spans else None,
        embeddings=prompt.picture_rows(start, stop, pictures),
        want_logits=want,
    )


def open_graphs(transformer: Transformer, cache: KvCache, plan: MemoryPlan) -> StepGraphs:
    """Recorded steps on a GPU. Raises BadRequest where the model is not all on one."""
    if cache.device.type != "cuda":
        raise BadRequest("Decode steps can be recorded on a GPU only, and this model runs on the CPU.")
    if plan.experts not in ("none", "packed"):
        raise BadRequest(
            f"Decode steps can be recorded only if the GPU holds all experts packed; they are {plan.experts}."
        )
    return StepGraphs(transformer, cache, CudaRecorder(cache.device))


class Forward:
    """Runs chunks through the model; single tokens by recorded steps, where there are any."""

    def __init__(self, transformer: Transformer, cache: KvCache, graphs: StepGraphs | None = None) -> None:
        self._transformer, self._cache, self._graphs = transformer, cache, graphs

    def __call__(self, chunks: Sequence[Chunk]) -> Tensor:
        """Logits float32 [L, vocab] of the chunks that want their last, in order; valid until the next call."""
        single = 0
        while self._graphs is not None and single < len(chunks) and _recordable(chunks[single]):
            single += 1
        parts = []
        if single and self._graphs is not None:
            logits = self._graphs(chunks[:single])
            if logits is None:
                single = 0
            else:
                parts.append(logits)
        if single < len(chunks):
            parts.append(self._transformer(build_batch(chunks[single:], self._cache)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _recordable(chunk: Chunk) -> bool:
    """Whether it is one token of text whose logits are wanted."""
    return (
        len(chunk.token_ids) == 1
        and chunk.embeddings is None
        and chunk.is_image is None
        and chunk.want_logits == "last"
    )
