"""Saving and restoring conversation state against reading the prompt again, and against the disk and the link.

python -m tests.bench.state demo [--tokens 2000]
python -m tests.bench.state hy4|v4_flash [--tokens 32768] [--device cuda]     synthetic state, no weights
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engine.api import Engine, EngineSettings, Message, ReplyOptions, Restored, Stats
from engine.cache.cache import KvCache
from engine.cache.layout import declare_cache
from engine.families import find_family
from engine.state.segment import SegmentHead, read_segment, write_segment

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def forget(path: Path) -> None:
    """Drop a file from the page cache, so that reading it reads the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def demo(tokens: int, repeats: int) -> None:
    """The embedded model on this machine: a conversation of about `tokens` tokens, closed and opened again."""
    text = " ".join(f"Line {i}: the colour is blue." for i in range(tokens // 9))
    messages = [Message("user", text[: tokens * 4])]

    def turn(engine: Engine) -> tuple[Stats, float]:
        restore, stats, start = 0.0, None, time.perf_counter()
        for event in engine.start("a").reply(messages, ReplyOptions(temperature=0, max_tokens=16)):
            if isinstance(event, Restored):
                restore = event.ms
            elif isinstance(event, Stats):
                stats = event
        assert stats is not None
        wall = time.perf_counter() - start
        return stats, restore if restore else wall * 1e3

    plain, saving, restores, prefills, sizes = [], [], [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            for place, walls in ((None, plain), (Path(name), saving)):
                engine = Engine.open(DEMO, EngineSettings(device="cpu", state_dir=place))
                stats, wall = turn(engine)
                walls.append(wall)
                prefills.append(stats.prefill_ms)
                per_token = engine._runtime.described.layout.bytes_per_token
                engine.close()
            sizes.append(sum(p.stat().st_size for p in Path(name).glob("*/*.kv")) / (per_token * stats.context_tokens))
            engine = Engine.open(DEMO, EngineSettings(device="cpu", state_dir=Path(name)))
            stats, ms = turn(engine)
            restores.append(ms)
            engine.close()
    prefill, restore = statistics.median(prefills), statistics.median(restores)
    print(f"{stats.prompt_tokens} prompt tokens, {stats.restored_tokens} restored, median of {repeats}")
    print(f"prefill {prefill:8.1f} ms   restore {restore:7.1f} ms   {prefill / restore:.0f} times faster")
    cost = statistics.median(saving) / statistics.median(plain) - 1
    print(
        f"a turn with saving takes {cost:+.1%} of one without; bytes on disk {statistics.median(sizes):.3f} of the cache's"
    )


def synthetic(config_name: str, tokens: int, device: torch.device, folder: Path) -> None:
    """State of a published model's shape, filled with random rows."""
    from tests.published import load

    config = load(config_name)
    spec = find_family(config).parse(config)
    layout = declare_cache(spec, torch.bfloat16)
    pages = -(-tokens // layout.page_tokens)
    cache = KvCache(layout, pages, 2, device)
    for tensor in (*cache._pools.values(), *cache._frontiers.values()):
        tensor.normal_()
    sequence = cache.open()
    assert sequence is not None and cache.reserve(sequence, tokens)
    sequence.length = tokens
    head = SegmentHead("bench", "bench", "", 0, tokens, tuple(range(tokens)), (), tokens)
    exported: dict[str, torch.Tensor] = {}
    export_s = seconds(lambda: exported.update(cache.export_rows(sequence, 0, tokens)))
    size = sum(t.nbytes for t in exported.values())
    path = folder / f"{head.key}.kv"
    write_s = seconds(lambda: write_segment(folder, head, exported))
    plain = folder / "plain"
    with plain.open("wb") as file:
        for tensor in exported.values():
            file.write(memoryview(tensor.view(-1).view(torch.uint8).numpy()))
    expected = {name: tensor.clone() for name, tensor in exported.items()}

    def read_plain() -> None:
        buffer = bytearray(32 << 20)
        with plain.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def restore() -> None:
        segment = read_segment(path)
        cache.truncate(sequence, 0)
        assert cache.reserve(sequence, tokens)
        cache.import_rows(sequence, 0, tokens, 0, segment.tensors)

    disk, restores = [], []
    for _ in range(3):
        forget(plain)
        disk.append(seconds(read_plain))
        forget(path)
        restores.append(seconds(restore))
    warm = min(seconds(restore) for _ in range(3))
    back = cache.export_rows(sequence, 0, tokens)
    assert all(torch.equal(back[name], tensor) for name, tensor in expected.items())
    disk_s, restore_s = min(disk), min(restores)
    print(f"{config_name}, {tokens} tokens: {size / 1e6:.0f} MB of state, {device}")
    print(f"export {size / export_s / 1e9:6.2f} GB/s   write and sync {size / write_s / 1e9:6.2f} GB/s")
    share = f"{disk_s / restore_s:.0%} of the disk"
    print(f"disk   {size / disk_s / 1e9:6.2f} GB/s   restore {size / restore_s / 1e9:6.2f} GB/s = {share}")
    print(f"restore from the page cache {size / warm / 1e9:6.2f} GB/s, {warm * 1e3:.1f} ms")
    if device.type == "cuda":
        block = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
        target = torch.empty_like(block, device=device)
        link = min(seconds(lambda: target.copy_(block)) for _ in range(3))
        print(
            f"link   {(1 << 30) / link / 1e9:6.2f} GB/s   restore from the page cache is {link * size / (1 << 30) / warm:.0%} of it"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=("demo", "hy4", "v4_flash"))
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.shape == "demo":
        torch.set_num_threads(2)
        demo(args.tokens or 2000, args.repeats)
        return
    name = {"hy4": "hy4", "v4_flash": "deepseek_v4_flash"}[args.shape]
    with tempfile.TemporaryDirectory() as folder:
        synthetic(name, args.tokens or 32768, torch.device(args.device), Path(folder))


if __name__ == "__main__":
    main()
