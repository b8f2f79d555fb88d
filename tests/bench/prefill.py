"""Reading a prompt with a random model through the product, and bringing its saved state back instead."""

from __future__ import annotations

import statistics
from pathlib import Path

from engine.chat.prompt import Prompt
from engine.memory.plan import PREFILL_CHUNK_TOKENS
from tests.bench.layer_clock import LayerClock
from tests.bench.product import Emit, Product, Work, part, random_prompt
from tests.bench.random_model import RandomModel
from tests.bench.state import forget, read_plainly


def prefill(model: RandomModel, product: Product, prompt: Prompt, chunk: int, emit: Emit) -> tuple[float, float]:
    """Read a prompt; seconds measured and scaled."""
    product.keeper.sealing_s = 0.0
    with LayerClock(model.transformer, model.device) as clock:
        answer = product.ask("prefill", prompt, 1)
    seconds, sealing = answer.stats.prefill_ms / 1e3, product.keeper.sealing_s
    kinds = model.by_kind(clock.device_ms(), 1)
    held, whole = model.state_bytes(len(prompt), 1)
    scaled = seconds + model.added(kinds) / 1e3 + sealing * (whole / held - 1)
    emit(
        what="prefill", tokens=len(prompt), chunk=chunk, seconds=seconds, layers_s=sum(clock.device_ms().values()) / 1e3,
        sealing_s=sealing, issue_s=sum(clock.host_ms().values()) / 1e3, scaled_s=scaled,
        scaled_tokens_per_s=len(prompt) / scaled, kinds_ms=kinds,
    )  # fmt: skip
    return seconds, scaled


def restore(
    model: RandomModel, product: Product, prompt: Prompt, times: tuple[float, float], work: Work, emit: Emit
) -> None:
    """Bring the saved conversation back, from the disk and from the page cache; `times`: its prefill, measured and scaled."""
    product.store.flush()
    saved = product.store.restore(prompt, 0, "look")
    assert saved is not None
    paths = [product.store._path(segment.head.key) for segment in saved.segments]
    size = sum(path.stat().st_size for path in paths)
    needed = sum(tensor.nbytes for segment in saved.segments for tensor in segment.tensors.values())
    cold, warm, walls, disk, disk_4 = [], [], [], [], []
    for _ in range(work.repeats):
        disk.append(read_plainly(paths, 1))
        disk_4.append(read_plainly(paths, 4))
        for path in paths:
            forget(path)
        for results in (cold, warm):
            product.drop("prefill")
            answer = product.ask("prefill", prompt, 1, saved=True)
            assert answer.restored is not None and answer.restored.tokens == saved.length
            results.append(answer.restored.ms / 1e3)
            walls.append(answer.wall_s)
    cold_s, warm_s, disk_s, disk_4_s = (statistics.median(each) for each in (cold, warm, disk, disk_4))
    held, whole = model.state_bytes(saved.length, 1)  # frontiers are read of the last segment only
    emit(
        what="restore", tokens=saved.length, segments=len(paths), bytes=size, needed_bytes=needed, cold_s=cold_s, warm_s=warm_s,
        wall_s_to_first_token={"cold": statistics.median(walls[::2]), "warm": statistics.median(walls[1::2])},
        gb_per_s={"disk": size / disk_s / 1e9, "disk, 4 readers": size / disk_4_s / 1e9, "cold": needed / cold_s / 1e9},
        cold_share_of_disk=disk_s / cold_s * needed / size, cold_share_of_disk_4=disk_4_s / cold_s * needed / size,
        share_of_prefill={"cold": cold_s / times[0], "warm": warm_s / times[0]},
        scaled_s={"cold": cold_s * whole / held, "warm": warm_s * whole / held},
        scaled_share_of_prefill={
            "cold": cold_s * whole / held / times[1], "warm": warm_s * whole / held / times[1],
        },
    )  # fmt: skip


def measure_prefill(model: RandomModel, work: Work, folder: Path, emit: Emit) -> None:
    """A first reading compiles and warms up, the second counts; then its state; then the product's usual chunk."""
    with Product(model, folder / "first", work.chunk) as product:
        first = product.ask("first", random_prompt(model, work.prompt, 3), 1)
        emit(what="first prefill", seconds=first.stats.prefill_ms / 1e3)
        product.drop("first")
    prompt = random_prompt(model, work.prompt, 4)
    with Product(model, folder / "second", work.chunk) as product, part(emit, "prefill"):
        times = prefill(model, product, prompt, work.chunk, emit)
        if not work.rehearsal:
            restore(model, product, prompt, times, work, emit)
        product.drop("prefill")
    usual, short = PREFILL_CHUNK_TOKENS["GPU"], work.prompt // 8
    with Product(model, folder / "third", usual) as product, part(emit, "usual chunk"):
        product.ask("first", random_prompt(model, short, 5), 1)
        product.drop("first")
        prefill(model, product, random_prompt(model, short, 6), usual, emit)
        product.drop("prefill")
