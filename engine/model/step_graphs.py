"""Steps of one token per conversation, recorded once per size and then repeated from a handful of numbers.

Knows batches and sizes, not requests. A step is first run as any other, so that its kernels are compiled and their
scratch memory exists; then it is recorded. Running a step twice with the same numbers writes the same cache rows again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.cache.cache import KvCache
from engine.model.batch import Chunk, padded_rows, single_token_batch, token_numbers
from engine.model.transformer import Transformer

_log = logging.getLogger(__name__)
Step = Callable[[], Tensor]
Record = Callable[[Step], Step]  # returns what does the same work on the same memory, and gives its result
_SAME = 1e-2  # relative difference of logits up to which a repeated step does what the recorded one did
_EXACT = 8  # conversations up to which every number has a recording of its own; from there on, every fourth
_LEAST_PAGES = 16


class CudaRecorder:
    """Records CUDA graphs, which share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    def __call__(self, step: Step) -> Step:
        graph = torch.cuda.CUDAGraph()
        # What other threads ask of the device meanwhile, such as saving state, has nothing to do with the recording.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            logits = step()

        def repeat() -> Tensor:
            graph.replay()
            return logits

        return repeat


class Size(NamedTuple):
    """What the shapes of a step follow from."""

    conversations: int
    pages: int  # width of the page table


def size_of(chunks: Sequence[Chunk]) -> Size:
    """The smallest size that holds these conversations."""
    count, pages = len(chunks), max(len(chunk.sequence.pages) for chunk in chunks)
    return Size(count if count <= _EXACT else -(-count // 4) * 4, max(_LEAST_PAGES, 1 << (pages - 1).bit_length()))


class _SizedStep:
    """One size's numbers on the device, and what computes logits [conversations, vocab] from them and the cache."""

    def __init__(self, size: Size, transformer: Transformer, cache: KvCache) -> None:
        self._size, self._page_tokens = size, cache.layout.page_tokens
        self._end = 8 * padded_rows(size.conversations)
        on_gpu = cache.device.type == "cuda"
        numbers = self._end + size.conversations * size.pages
        self._staged = torch.zeros(numbers, dtype=torch.int64, pin_memory=on_gpu)
        self._numbers = torch.zeros(numbers, dtype=torch.int64, device=cache.device)
        self._sent = torch.cuda.Event() if on_gpu else None
        self._tables: list[list[int]] = [[] for _ in range(size.conversations)]  # as staged
        self.run: Step = lambda: transformer(single_token_batch(self._numbers, size.conversations, cache))
        self.repeat: Step | None = None
        self.has_run = False

    def tell(self, chunks: Sequence[Chunk]) -> None:
        """Send what the next run works on. Rows to spare repeat the first conversation and write what it writes."""
        if self._sent is not None:
            self._sent.synchronize()
        count, pages = self._size
        chunks = [*chunks, *[chunks[0]] * (count - len(chunks))]
        self._staged[: self._end] = torch.tensor(token_numbers(chunks, self._page_tokens))
        for row, table, chunk in zip(self._staged[self._end :].view(count, pages), self._tables, chunks, strict=True):
            if table != chunk.sequence.pages:
                table[:] = chunk.sequence.pages
                row[: len(table)] = torch.tensor(table)
        self._numbers.copy_(self._staged, non_blocking=True)
        if self._sent is not None:
            self._sent.record(torch.cuda.current_stream(self._numbers.device))


class StepGraphs:
    """Recorded steps of all sizes met so far. Used by one thread."""

    def __init__(self, transformer: Transformer, cache: KvCache, record: Record) -> None:
        self._transformer, self._cache, self._record = transformer, cache, record
        self._steps: dict[Size, _SizedStep] = {}
        self._usable = True

    def __call__(self, chunks: Sequence[Chunk]) -> Tensor | None:
        """Logits float32 [len(chunks), vocab] of chunks of one token each, valid until the next call; caches the tokens.

        None, and nothing done, once a step could not be recorded here, which has been logged.
        """
        if not self._usable:
            return None
        size = size_of(chunks)
        step = self._steps.get(size)
        if step is None:
            step = self._steps[size] = _SizedStep(size, self._transformer, self._cache)
        step.tell(chunks)
        if step.repeat is not None:
            return step.repeat()[: len(chunks)]
        logits = step.run()
        if step.has_run:
            logits = self._recorded(step, logits)
        step.has_run = True
        return logits[: len(chunks)]

    def _recorded(self, step: _SizedStep, expected: Tensor) -> Tensor:
        """Record a step, which has just been run for the second time, and repeat it once to see that it does the same."""
        try:
            step.repeat = self._record(step.run)
            logits = step.repeat()
            difference = float((logits - expected).norm() / expected.norm())
            reason = "" if difference <= _SAME else f"a repeated step is off by {difference:.1e}"
        except Exception as error:  # whatever an operator does that cannot be recorded
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if not reason:
            return logits
        _log.warning("steps are not recorded: %s", reason)
        self._usable = False
        self._steps.clear()
        return expected
