"""A person's wishes for one loaded model. Plain data; `None` means: let the planner decide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class EngineSettings:
    """Explicit values always win over the planner; what cannot be had is refused, never silently changed."""

    device: str | None = None  # "cpu", "cuda", "cuda:1"; None: the best there is
    context_tokens: int | None = None  # longest conversation; None: as the model and the memory allow
    cache_tokens: int | None = None  # all live conversations together
    ram_budget_bytes: int | None = None  # upper bound for everything the engine keeps in RAM
    prefill_chunk_tokens: int | None = None  # prompt tokens per step; a chunk never changes the result
    max_batch: int = 16  # conversations decoded in one step
    threads: int | None = None  # CPU threads; None: torch's own choice
    cache_layout: Literal["exact", "compact"] | None = None  # FP8 rows or plain ones; None: compact on a GPU
    cuda_graphs: bool = False  # record decode steps on a GPU that holds all experts, and repeat the recordings
    state_dir: Path | None = None  # where sealed KV segments go; None: nothing is saved
    state_budget_bytes: int | None = None  # for saved state on disk; None: a tenth of the free space
