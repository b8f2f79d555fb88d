"""Stage: warm. Compiles all that a run will need, so that training need not wait for it.

    TORCHINDUCTOR_CACHE_DIR=WORK/compiled python -m assets.training.warm
    tar cf compiled.tar -C WORK compiled

One process per kind of batch and stage, beside each other, on a model with few layers: the graphs know neither how many
layers there are nor what the numbers are. The folder serves every machine with the same GPU, torch and code.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch._dynamo.utils import counters

from assets.training.documents import ANSWER_WEIGHT, ROW_PATCHES
from assets.training.feed import TINY_PLAN, BatchSize, Plan, SharedBatch
from assets.training.model.optimizer import Optimizer
from assets.training.model.twin import Stage, TokenRows, Twin
from assets.training.shape import SHAPES, Shape
from assets.training.train import INDEX_ROWS

# The first one has all the graphs that do not know the length of a row, with and without rounded experts.
KINDS = {"short": ((False, False, False), (False, False, True)), "long": ((True, False, False),)}
KINDS |= {"short-sparse": ((False, True, False),), "long-sparse": ((True, True, False),)}  # (long, sparse, quantized)


def batch(size: BatchSize, shape: Shape) -> TokenRows:
    """Random content in the sizes and types of the feeder."""
    rows = SharedBatch(size).take(pinned=False)
    order = torch.arange(size.tokens)
    slots = rows.patches.shape[0] * ROW_PATCHES // 4 + 1
    rows.ids.random_(shape.vocab)
    rows.weight.fill_(ANSWER_WEIGHT)
    rows.positions.copy_(order)
    rows.document.copy_(order // 256)
    rows.slot.random_(-slots, slots).clamp_min_(-1)
    rows.patches.random_(256)
    rows.place.random_(1, 16)
    return rows


def few_layers(shape: Shape) -> Shape:
    """One layer of every kind: dense with an index, experts with an index, experts without one."""
    return replace(shape, layers=3, index_layers=(0, 1), vision_layers=1)


@contextmanager
def waiting_is_told(device: str) -> Iterator[None]:
    """Names every place that makes the processor wait for the GPU; once all is compiled there should be none."""
    if device != "cuda":
        yield
        return
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        yield
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    for place in sorted({f"{w.filename}:{w.lineno}" for w in told if "synchroniz" in str(w.message)}):
        print("waits for the GPU:", place, flush=True)


def warm(kind: str, name: str, device: str, steps: int, backend: str = "inductor") -> dict[str, float]:
    """Some steps of every stage in `kind`; seconds, and what the caches did."""
    begun = time.monotonic()
    shape, plan = few_layers(SHAPES[name]), Plan() if name == "full" else TINY_PLAN
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = Twin(shape).to(device)
    model.compile(backend)
    optimizer = Optimizer(model, fused=device == "cuda")
    found: dict[str, float] = {}
    for long, sparse, quantized in KINDS[kind]:
        rows = batch(plan.long if long else plan.short, shape).to(device)
        stage = Stage(sparse, quantized, INDEX_ROWS[long])

        def step(rows: TokenRows = rows, stage: Stage = stage) -> None:
            losses = model.losses(rows, stage, dtype)
            (losses.cross_entropy / losses.weight + losses.index).backward()
            optimizer.step(1e-4)
            model.zero_grad(set_to_none=True)

        step()
        with waiting_is_told(device):
            for _ in range(steps):
                step()
    if device == "cuda":
        found["gigabytes"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
    for group in ("inductor", "aot_autograd"):
        found |= {k: v for k, v in counters[group].items() if "cache" in k}
    return {"graphs": counters["stats"]["unique_graphs"], **found, "seconds": round(time.monotonic() - begun, 1)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.warm", description=__doc__)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="full")
    parser.add_argument("--steps", type=int, default=2, help="after the one that compiles")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--kind", choices=tuple(KINDS), help="only this one, in this process")
    wishes = parser.parse_args(arguments)
    if wishes.kind is not None:
        print(wishes.kind, json.dumps(warm(wishes.kind, wishes.shape, wishes.device, wishes.steps)), flush=True)
        return
    common = ["--shape", wishes.shape, "--steps", str(wishes.steps), "--device", wishes.device]
    command = [sys.executable, "-m", "assets.training.warm", *common, "--kind"]
    running = [subprocess.Popen([*command, kind]) for kind in KINDS]
    if failed := [kind for kind, p in zip(KINDS, running, strict=True) if p.wait()]:
        sys.exit(f"not compiled: {', '.join(failed)}")


if __name__ == "__main__":
    main()
