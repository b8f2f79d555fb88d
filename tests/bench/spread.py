"""Experts of DeepSeek-V4-Flash's shape that come from RAM: one token with all, some or none held by the GPU, and prompts.

python -m tests.bench.spread [--layers 2] [--slots 600]

Random bytes; every expert is in RAM (3.2 GiB a layer). Beside each time stands what the copies alone would take at the rate
that is measured first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from engine.memory.expert_plan import Shares
from engine.model.expert_groups import ExpertShape, copy_expert
from engine.model.spread import SpreadExperts, SpreadMemory
from kernels.experts import MxFp4Matrix, PackedExpert
from tests.bench.layer_clock import wait

TOPK = 6


def random_expert(shape: ExpertShape) -> PackedExpert:
    """Random codes; scales within what FP8 holds exactly."""

    def matrix(rows: int, columns: int) -> MxFp4Matrix:
        codes = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
        return MxFp4Matrix(codes, torch.randint(116, 121, (rows, columns // 32), dtype=torch.uint8))

    return PackedExpert(
        matrix(shape.width, shape.hidden), matrix(shape.width, shape.hidden), matrix(shape.hidden, shape.width)
    )


def timed(device: torch.device, works: Iterable[Callable[[], object]]) -> float:
    """Median seconds of pieces of work, each waited for."""
    times = []
    for work in works:
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(device: torch.device, shape: ExpertShape, shares: Shares, prompts: list[int]) -> list[str]:
    """One line per result."""
    lines, per_layer = [], shares.count // shares.layers
    expert, start = random_expert(shape), time.perf_counter()
    memory = SpreadMemory(shares, shape, device)
    banks = [
        SpreadExperts(per_layer, lambda _: expert, lambda _: None, memory, lambda _: None) for _ in range(shares.layers)
    ]
    wait(device)
    gib = memory.store.nbytes / 2**30
    lines.append(f"filled {gib:.1f} GiB of RAM in {time.perf_counter() - start:.1f} s")
    kept, target = memory.store._kept[0, 0], memory.staging._halves[0]
    each = timed(device, [lambda: [copy_expert(kept, (target, 0)) for _ in range(20)]] * 5) / 20
    rate = shape.packed_bytes / each / 1e9
    lines.append(f"one expert, {shape.packed_bytes / 1e6:.1f} MB: {each * 1e3:.3f} ms, {rate:.1f} GB/s")

    def step(bank: SpreadExperts, ids: Tensor) -> Callable[[], Tensor]:
        x = torch.randn(len(ids), shape.hidden, device=device).to(torch.bfloat16)
        return partial(bank, x, ids.to(device), torch.rand(ids.shape, device=device), 10.0)

    def report(what: str, works: list[Callable[[], Tensor]]) -> None:
        before = memory.use.from_ram
        seconds = timed(device, works)
        copied = (memory.use.from_ram - before) / len(works)
        alone = copied * each
        lines.append(f"{what}, {copied:.1f} experts copied: {seconds * 1e3:.2f} ms, copies alone {alone * 1e3:.2f} ms")

    usual = torch.arange(TOPK).unsqueeze(0)
    for fresh in (0, TOPK // 2, TOPK):  # the others are always the same
        for bank in banks:
            step(bank, usual)()
        works = []
        for first in range(TOPK, per_layer - TOPK, TOPK):
            ids = torch.cat([usual[:, : TOPK - fresh], usual[:, :fresh] + first], 1)
            works += [step(bank, ids) for bank in banks]
        report("1 token", works)
    for tokens in prompts:
        work = step(banks[0], torch.rand(tokens, per_layer).topk(TOPK).indices)
        work()
        report(f"{tokens} tokens", [work] * 5)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=600)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA device")
    count = args.layers * 256
    shares = Shares(args.slots, count, 16, args.layers, count)
    for line in measure(torch.device("cuda"), ExpertShape(2048, 4096), shares, [256, 4096]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
