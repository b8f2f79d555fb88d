"""Decode, prefill and restore of models of published shape with random weights, through the product's own parts, on one GPU.

python -m tests.bench.gpu_model [--shapes v4_flash hy4] [--out FILE] [--seconds 230]

Each result is one JSON line. As many of the published layers as fit are run; `scaled` numbers add, for every kind of
layer, the measured time of one layer times the layers that are missing. Kernels are compiled beforehand, by short runs
side by side. "device_alone" times hold no waiting for the host, except where a layer itself waits for the device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.memory.plan import gib
from tests.bench.decode import measure_decode, measure_graph, measure_growth
from tests.bench.layer_clock import wait
from tests.bench.prefill import measure_prefill
from tests.bench.product import PARTS, Emit, Work, part
from tests.bench.random_model import build_model, kind_name
from tests.published import load

SHAPES = {"v4_flash": "deepseek_v4_flash", "hy4": "hy4_preview"}
_SELF = (sys.executable, "-m", "tests.bench.gpu_model")


def rounded(value: Any) -> Any:
    """Four significant digits are more than a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


def emitter(shape: str, out: Path | None) -> Emit:
    """Prints one JSON line per result, and appends it to a file at once."""
    begin = time.perf_counter()

    def emit(**result: Any) -> None:
        line = json.dumps({"shape": shape, **rounded(result), "at_s": round(time.perf_counter() - begin, 1)})
        print(line, flush=True)
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    return emit


def measure(
    config: dict[str, Any],
    device: torch.device,
    work: Work,
    folder: Path,
    emit: Emit,
    budget_bytes: int,
    layers: int | None,
) -> None:
    """Build one model and measure its parts."""
    start = time.perf_counter()
    model = build_model(config, device, work.cache_tokens, work.chunk, budget_bytes, layers)
    wait(device)
    counts = {kind_name(layer): f"{n} of {n + model.missing[layer]}" for layer, n in model.held.items()}
    emit(
        what="model", layers=len(model.spec.layers), of=len(model.whole.layers), kinds=counts, budget=gib(budget_bytes),
        sizes=str(model.sizes), seconds=time.perf_counter() - start,
    )  # fmt: skip
    if "decode" in work.parts:
        with part(emit, "decode"):
            measure_decode(model, work, folder, emit)
    if "prefill" in work.parts:
        with part(emit, "prefill"):
            measure_prefill(model, work, folder, emit)
    if "growth" in work.parts:
        with part(emit, "growth"):
            measure_growth(model, work, emit)
    if "graph" in work.parts:
        with part(emit, "graph"):
            measure_graph(model, work, emit)
    if device.type == "cuda":
        emit(what="memory", peak=gib(torch.cuda.max_memory_allocated(device)))


def rehearse(shapes: list[str], seconds: float) -> None:
    """Let short runs fill Triton's cache side by side: compiling takes longer than measuring."""
    runs = [
        subprocess.Popen([*_SELF, "--shapes", shape, "--rehearse", name], stdout=subprocess.DEVNULL)
        for shape in shapes
        for name in ("decode", "prefill")
    ]
    end = time.monotonic() + seconds
    for run in runs:
        try:
            run.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, help="also write the results here, as they come")
    parser.add_argument(
        "--seconds", type=float, default=230, help="for everything; what is not done by then is cut off"
    )
    parser.add_argument("--layers", type=int, help="default: as many as fit")
    parser.add_argument("--memory-gib", type=float, default=120)
    parser.add_argument("--rehearse", choices=("decode", "prefill"), help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA device")
    if args.rehearse or args.here:
        work, layers = Work(tuple(args.parts)), args.layers
        if args.rehearse:
            work, layers = replace(work, parts=(args.rehearse,), steps=8, rehearsal=True), 0
        for shape in args.shapes:
            with tempfile.TemporaryDirectory() as folder:
                config, budget = load(SHAPES[shape]), int(args.memory_gib * (1 << 30))
                measure(config, torch.device("cuda"), work, Path(folder), emitter(shape, args.out), budget, layers)
        return
    begin = time.monotonic()
    rehearse(args.shapes, args.seconds / 2)
    for number, shape in enumerate(args.shapes):  # each in a process of its own, so that the next finds the memory free
        left = (args.seconds - (time.monotonic() - begin)) / (len(args.shapes) - number)
        options = [f"--memory-gib={args.memory_gib}", "--parts", *args.parts]
        options += [f"--out={args.out}"] * bool(args.out) + [f"--layers={args.layers}"] * bool(args.layers)
        try:
            subprocess.run([*_SELF, "--here", "--shapes", shape, *options], timeout=max(left, 1.0), check=False)
        except subprocess.TimeoutExpired:
            emitter(shape, args.out)(what="cut off", after_s=left)


if __name__ == "__main__":
    main()
