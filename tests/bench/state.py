"""Saving and restoring conversation state against reading the prompt again, and against the disk and the link.

python -m tests.bench.state demo [--tokens 2000]
python -m tests.bench.state hy4|v4_flash [--tokens 32768] [--segment 4096] [--exact] [--device cuda]   random state, no weights

Of random state: what is needed of the chain's files is read and verified, then brought into the cache. Wall time, and the
processor time of all threads together, which is what one thread would take and what other work on the machine hardly moves.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

from engine.api import Engine, EngineSettings, Message, ReplyOptions, Restored, Stats
from engine.cache.cache import CachedSequence, KvCache
from engine.cache.layout import declare_cache
from engine.families import find_family
from engine.state.segment import Segment, SegmentHead, read_chain, write_segment

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


def read_plainly(paths: list[Path], threads: int) -> float:
    """Seconds to read files from the disk, without looking at them."""
    for path in paths:
        forget(path)

    def read(path: Path) -> None:
        buffer = bytearray(16 << 20)
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, paths))
    return time.perf_counter() - start


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


class Restore(NamedTuple):
    """Seconds of the two parts of a restore: wall time and processor time."""

    verify_s: float
    verify_processor_s: float
    load_s: float
    load_processor_s: float

    @property
    def wall_s(self) -> float:
        return self.verify_s + self.load_s


def save_chain(cache: KvCache, sequence: CachedSequence, per_segment: int, folder: Path) -> list[Path]:
    """Save what a sequence holds as a chain, and say how fast that was."""
    paths, parent, export_s, write_s = [], "", 0.0, 0.0
    for start in range(0, sequence.length, per_segment):
        stop = min(sequence.length, start + per_segment)
        exported: dict[str, torch.Tensor] = {}
        export_s += seconds(lambda a=start, b=stop, into=exported: into.update(cache.export_rows(sequence, a, b)))
        head = SegmentHead("bench", "bench", parent, start, stop, tuple(range(start, stop)), (), stop)
        write_s += seconds(lambda h=head, tensors=exported: paths.append(write_segment(folder, h, tensors)))
        parent = head.key
    size = sum(path.stat().st_size for path in paths)
    print(
        f"{len(paths)} segments, {size / 1e6:.0f} MB on disk; frontiers {cache.layout.bytes_per_conversation / 1e6:.1f} MB"
    )
    print(f"export {size / export_s / 1e9:6.2f} GB/s   write and sync {size / write_s / 1e9:6.2f} GB/s")
    return paths


def restore(cache: KvCache, sequence: CachedSequence, paths: list[Path]) -> Restore:
    """Bring a chain back."""
    tokens, segments = sequence.length, list[Segment]()
    start, processor = time.perf_counter(), time.process_time()
    segments += read_chain(paths)
    verified, verified_processor = time.perf_counter(), time.process_time()
    cache.truncate(sequence, 0)
    assert cache.reserve(sequence, tokens)
    load_s = seconds(
        lambda: cache.import_rows(sequence, tokens, [(segment.head.start, segment.tensors) for segment in segments])
    )
    return Restore(verified - start, verified_processor - processor, load_s, time.process_time() - verified_processor)


def synthetic(
    config_name: str, tokens: int, per_segment: int, compact: bool, device: torch.device, folder: Path
) -> None:
    """State of a published model's shape, filled with random rows."""
    from tests.published import load

    config = load(config_name)
    layout = declare_cache(find_family(config).parse(config), torch.bfloat16, compact)
    cache = KvCache(layout, -(-tokens // layout.page_tokens), 2, device)
    for tensor in (*cache._pools.values(), *cache._frontiers.values()):
        tensor.random_(0, 256) if tensor.dtype == torch.uint8 else tensor.normal_()
    sequence = cache.open()
    assert sequence is not None and cache.reserve(sequence, tokens)
    sequence.length = tokens
    print(f"{config_name}, {tokens} tokens, {'compact' if compact else 'exact'} cache, {device}")
    expected = cache.export_rows(sequence, 0, tokens)
    size = sum(tensor.nbytes for tensor in expected.values())
    paths = save_chain(cache, sequence, per_segment, folder)
    parts = [folder / f"plain{number}" for number in range(4)]
    for part in parts:
        part.write_bytes(os.urandom(size // 4))
    disk, disk_4 = (min(read_plainly(parts, threads) for _ in range(3)) for threads in (1, 4))
    cold, warm = [], []
    for _ in range(3):
        for path in paths:
            forget(path)
        cold.append(restore(cache, sequence, paths))
        warm += [restore(cache, sequence, paths) for _ in range(3)]
    back = cache.export_rows(sequence, 0, tokens)
    assert all(torch.equal(back[name], tensor) for name, tensor in expected.items())
    print(f"disk   {size / disk / 1e9:6.2f} GB/s by one reader, {size / disk_4 / 1e9:.2f} by four")
    for name, results in (("cold", cold), ("warm", warm)):
        best = min(results, key=lambda one: one.wall_s)
        processor = [min(one[column] for one in results) for column in (1, 3)]
        print(
            f"{name}   {size / best.wall_s / 1e9:6.2f} GB/s: {best.wall_s * 1e3:.0f} ms for {size / 1e6:.0f} MB = verify "
            f"{best.verify_s * 1e3:.0f} + load {best.load_s * 1e3:.0f}; processor {processor[0] * 1e3:.0f} + "
            f"{processor[1] * 1e3:.0f} ms, one thread {size / sum(processor) / 1e9:.2f} GB/s"
        )
    if device.type == "cuda":
        block = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
        target = torch.empty_like(block, device=device)
        link = min(seconds(lambda: target.copy_(block)) for _ in range(3))
        print(f"link   {(1 << 30) / link / 1e9:6.2f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=("demo", "hy4", "v4_flash"))
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--segment", type=int, default=4096, help="tokens of a segment")
    parser.add_argument("--exact", action="store_true", help="bfloat16 rows instead of FP8")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.shape == "demo":
        torch.set_num_threads(args.threads or 2)
        demo(args.tokens or 2000, args.repeats)
        return
    name = {"hy4": "hy4", "v4_flash": "deepseek_v4_flash"}[args.shape]
    torch.set_num_threads(args.threads or torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        tokens, device = args.tokens or 32768, torch.device(args.device)
        synthetic(name, tokens, args.segment, not args.exact, device, Path(folder))


if __name__ == "__main__":
    main()
