"""Whole models on a GPU: prepared oracle checkpoints and the demo through the fast path, against expected numbers.

python -m tests.bench.gpu_end_to_end CASES_DIR       each subdirectory: a checkpoint with expected/expected.safetensors
python -m tests.bench.gpu_end_to_end --decode        decode speed of a DeepSeek-V4-Flash-shaped model, some layers
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors.torch import load_file

from engine.api import Engine, EngineSettings, Message, ReplyOptions, Text
from engine.model.batch import Chunk, build_batch
from engine.runtime import open_runtime
from engine.scoring import ScorePrompt, score
from kernels.choose import OPERATORS, use
from tests.support.compare import cosine, relative_rms

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
QUESTIONS = (
    "Hello!", "What is 7 plus 8?", "What is the capital of Japan?", "What day comes after Friday?",
    "Spell the word garden.", "What is the opposite of happy?", "Give me three tips on how to save money.",
)  # fmt: skip


def judge(folder: Path, layout: str, reference: bool) -> str:
    """One line: logits error, equal top-k rows, equal expert rows, equal greedy ids."""
    wanted = load_file(folder / "expected" / "expected.safetensors")
    info = json.loads((folder / "expected" / "expected.json").read_text())
    images = [folder / "expected" / str(image["file"]) for image in info.get("images", [])]
    settings = EngineSettings(device="cuda", cache_layout=layout, cache_tokens=2048)  # type: ignore[arg-type]
    runtime = open_runtime(folder, settings)
    prompt = ScorePrompt(wanted["input_ids"].tolist(), images, [len(wanted["input_ids"])], 16)
    with ExitStack() as stack:
        if reference:
            for name in OPERATORS:
                stack.enter_context(use(name, "reference"))
        got = score(runtime, prompt, 64)
    sets = {"topk": [0, 0], "router": [0, 0]}
    for name, tensor in got.items():
        kind = name.split(".")[0]
        if kind in sets and not name.endswith("weights"):
            for a, b in zip(tensor.tolist(), wanted[name].tolist(), strict=True):
                sets[kind][0] += {i for i in a if i >= 0} == {i for i in b if i >= 0}
                sets[kind][1] += 1
    name = f"greedy.{prompt.greedy_lengths[0]}.ids"
    same = int((got[name] == wanted[name]).sum())
    error, angle = relative_rms(wanted["logits"], got["logits"]), cosine(wanted["logits"], got["logits"])
    shares = "  ".join(f"{kind} {a}/{b}" for kind, (a, b) in sets.items())
    return f"rel rms {error:.1e}  cosine {angle:.6f}  {shares}  greedy {same}/16"


def demo_texts(device: str, layout: str | None) -> list[str]:
    """Greedy answers of the demo model."""
    settings = EngineSettings(device=device, cache_layout=layout)  # type: ignore[arg-type]
    engine = Engine.open(DEMO, settings)
    texts = []
    for number, question in enumerate(QUESTIONS):
        events = engine.start(f"q{number}").reply(
            [Message("user", question)], ReplyOptions(temperature=0, max_tokens=48)
        )
        texts.append("".join(event.text for event in events if isinstance(event, Text)))
    engine.close()
    return texts


def decode_speed(layers: int, context: int, folder: Path) -> None:
    """Decode step of the published V4-Flash shape with `layers` of its 43 layers, random packed experts."""
    from tests.published import load
    from tests.support.synthetic import write_synthetic

    config = load("deepseek_v4_flash")
    config["num_hidden_layers"] = layers
    config["compress_ratios"] = [*config["compress_ratios"][:layers], 0]
    write_synthetic(folder, config)
    runtime = open_runtime(folder, EngineSettings(device="cuda", cache_layout="compact", cache_tokens=context + 4096))
    sequence = runtime.cache.open()
    assert sequence is not None and runtime.cache.reserve(sequence, context + 256)
    sequence.length = context  # rows of zeros are as good as any for timing
    token = torch.zeros(1, dtype=torch.int64)

    def step() -> None:
        chunk = Chunk(sequence, token, torch.full((3, 1), sequence.length))
        runtime.model.transformer(build_batch([chunk], runtime.cache))
        sequence.length += 1

    for _ in range(8):
        step()
    times = []
    for _ in range(40):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    whole = median / layers * 43
    print(f"V4-Flash shape, {layers} layers, context {context}: {1e3 * median:.2f} ms a step, eager")
    print(f"scaled to 43 layers: {1e3 * whole:.1f} ms = {1 / whole:.1f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="?")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/synthetic"))
    args = parser.parse_args()
    if args.decode:
        decode_speed(args.layers, args.context, args.scratch)
    if args.cases is None:
        return
    for folder in sorted(p for p in args.cases.iterdir() if (p / "config.json").exists()):
        for layout, reference in (("exact", True), ("exact", False), ("compact", False)):
            try:
                line = judge(folder, layout, reference)
            except Exception as problem:
                line = f"{type(problem).__name__}: {problem}"
            print(f"{folder.name:14} {layout:8} {'reference' if reference else 'chosen':9} {line}", flush=True)
    wanted = demo_texts("cpu", "exact")
    for layout in ("exact", "compact"):
        got = demo_texts("cuda", layout)
        same = sum(a == b for a, b in zip(wanted, got, strict=True))
        print(f"demo {layout}: {same} of {len(wanted)} greedy answers as on the CPU")
        for question, a, b in zip(QUESTIONS, wanted, got, strict=True):
            if a != b:
                print(f"  {question!r}\n    cpu  {a!r}\n    cuda {b!r}")


if __name__ == "__main__":
    main()
