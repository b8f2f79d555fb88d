"""The demo checkpoint on this CPU: decode and prefill speed of the engine against transformers, same weights, same run.

python -m tests.bench.cpu_demo [--threads 2] [--repeats 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engine.memory.plan import PREFILL_CHUNK_TOKENS
from engine.model.batch import Chunk, build_batch
from engine.runtime import Runtime, open_runtime
from engine.settings import EngineSettings
from kernels.choose import Case, can_run
from kernels.norm import rms_norm

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
DECODE_TOKENS = 48


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def prompt_ids(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(8, 4000, (length,), generator=generator)


def engine_times(runtime: Runtime, ids: torch.Tensor, chunk_tokens: int) -> tuple[float, float]:
    """Seconds of prefill and of DECODE_TOKENS decode steps."""
    cache = runtime.cache
    sequence = cache.open()
    assert sequence is not None

    def read(part: torch.Tensor) -> torch.Tensor:
        cache.reserve(sequence, sequence.length + len(part))
        positions = torch.arange(sequence.length, sequence.length + len(part)).expand(3, -1)
        logits = runtime.model.transformer(build_batch([Chunk(sequence, part, positions)], cache))
        sequence.length += len(part)
        return logits

    def prefill() -> None:
        for part in ids.split(chunk_tokens):
            read(part)

    def decode() -> None:
        token = ids[-1:]
        for _ in range(DECODE_TOKENS):
            token = read(token).argmax(-1)

    result = seconds(prefill), seconds(decode)
    cache.close(sequence)
    return result


def rival_times(model: torch.nn.Module, ids: torch.Tensor) -> tuple[float, float]:
    """The same with transformers' own class and cache."""
    state: dict[str, object] = {}

    def prefill() -> None:
        state["out"] = model(input_ids=ids[None], use_cache=True)

    def decode() -> None:
        out = state["out"]
        for _ in range(DECODE_TOKENS):
            token = out.logits[:, -1:].argmax(-1)  # type: ignore[attr-defined]
            out = model(input_ids=token, cache=out.cache, use_cache=True)  # type: ignore[attr-defined]

    with torch.inference_mode():
        return seconds(prefill), seconds(decode)


def choice_seconds(rounds: int = 200, calls: int = 100) -> float:
    """What an operator costs beside the implementation that it has chosen, a call."""
    x = torch.ones(1, 8)
    kind = "cpu" if can_run("rms_norm", "cpu") else "reference"
    direct = rms_norm.implementations[kind].load(Case("cpu", x.dtype))

    def best(call: Callable[..., object]) -> float:
        return min(seconds(lambda: [call(x, None, 1e-5) for _ in range(calls)]) for _ in range(rounds))

    return (best(rms_norm) - best(direct)) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=PREFILL_CHUNK_TOKENS["RAM"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    from tests.support.oracle.families.base import load_directly
    from tests.support.oracle.families.hy_v4 import HyV4VL

    runtime = open_runtime(DEMO, EngineSettings(device="cpu", threads=args.threads))
    rival, _ = load_directly(HyV4VL(), DEMO)
    print(f"torch {torch.__version__}, {args.threads} threads, best of {args.repeats}")
    print(f"choosing a kernel costs {1e6 * choice_seconds():.1f} us a call")
    print(f"{'context':>8} {'':8} {'engine tok/s':>13} {'transformers':>13} {'ratio':>7}")
    for length in (50, 1000, 2000):
        ids = prompt_ids(length)
        ours, theirs = [], []
        for _ in range(args.repeats + 1):  # the first is a warm-up
            ours.append(engine_times(runtime, ids, args.chunk))
            theirs.append(rival_times(rival, ids))
        for kind, tokens, column in (("prefill", length, 0), ("decode", DECODE_TOKENS, 1)):
            mine = tokens / min(t[column] for t in ours[1:])
            other = tokens / min(t[column] for t in theirs[1:])
            print(f"{length:>8} {kind:8} {mine:13.1f} {other:13.1f} {mine / other:6.2f}x")


if __name__ == "__main__":
    main()
