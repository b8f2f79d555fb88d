"""Kernel speed: our kernels, rivals and the machine's ceilings in one run, as one table.

python -m tests.bench.kernels [--only SECTION ...] [--json FILE]. GPU sections need a CUDA device; rivals (flash_mla,
deep_gemm) are measured where they can be imported. Times are medians in microseconds of graph replays after reading
512 MB to flush the L2 cache; they include the launch of about 3 us. CPU sections take the best of several runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

Work = Callable[[], Any]


@dataclass
class Row:
    """One line of the table; `rate` is in `unit`, `target` is a sentence."""

    section: str
    what: str
    us: float
    rate: float | None = None
    unit: str = ""
    target: str = ""


class Table:
    """Collects rows and prints each as it is measured."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, *fields: Any) -> None:
        row = Row(*fields)
        self.rows.append(row)
        rate = f"{row.rate:9.2f} {row.unit}" if row.rate is not None else ""
        print(f"{row.section:<16} {row.what:<58} {row.us:10.2f} us {rate:<18} {row.target}", flush=True)


_flush: list[torch.Tensor] = []


def gpu_us(work: Work, repeats: int = 20, graph: bool = True) -> float:
    """Median time of one call between events, after reading 512 MB."""
    if not _flush:
        _flush.extend(torch.ones(64 << 20, device="cuda") for _ in range(2))
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    run = work
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            work()
        run = captured.replay
    times = []
    for _ in range(repeats):
        for block in _flush:
            block.sum()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def cpu_us(work: Work, repeats: int = 15) -> float:
    """Best time of one call: other processes only ever make it slower."""
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def ceilings(table: Table) -> None:
    """What the card does at best."""
    x = torch.randint(0, 255, (2 << 30,), dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    us = gpu_us(lambda: y.copy_(x), 8, graph=False)
    table.add("ceilings", "copy 2 GiB", us, 2 * x.numel() / us / 1e6, "TB/s")
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    us = gpu_us(lambda: a @ b, 8, graph=False)
    table.add("ceilings", "bfloat16 product 8192^3", us, 2 * 8192**3 / us / 1e6, "TFLOP/s")


def packed_pool(entries: int, page: int = 64) -> torch.Tensor:
    """Random packed index keys, 132 bytes per entry."""
    pages = entries // page
    codes = torch.randn(pages, page * 128, device="cuda").to(torch.float8_e4m3fn).view(torch.uint8)
    scale = torch.rand(pages, page, device="cuda").view(torch.uint8)
    return torch.cat([codes, scale], 1).contiguous()


def selection_inputs(batch: int, context: int, heads: int = 64) -> tuple[Any, ...]:
    pool = packed_pool(context * batch)
    table = torch.randperm(context * batch // 64, device="cuda").view(batch, -1)
    q = torch.randn(batch, heads, 128, device="cuda").to(torch.float8_e4m3fn)
    w = torch.randn(batch, heads, device="cuda")
    return q, w, pool, table, torch.arange(batch, device="cuda"), torch.full((batch,), context, device="cuda")


SELECTIONS = (
    (1, 32768, 2048, "<= 14 us"), (1, 131072, 2048, "<= 20 us"), (1, 1 << 20, 2048, "<= 55 us"),
    (1, 262144, 512, ""), (4, 131072, 2048, ""), (4, 32768, 2048, ""),
)  # fmt: skip


def select_decode(table: Table) -> None:
    """Index selection of single steps over paged FP8 keys."""
    from kernels.index_select import triton as kernels

    for batch, context, k, target in SELECTIONS:
        args = selection_inputs(batch, context)
        us = gpu_us(lambda args=args, k=k: kernels.index_select(*args, k))
        table.add("select decode", f"batch {batch}, {context} paged FP8 keys, k {k}", us, None, "", target)
        scores = torch.randn(batch, context, device="cuda")
        us = gpu_us(lambda scores=scores, k=k: scores.topk(k, sorted=False))
        table.add("select decode", f"  torch.topk alone, batch {batch}, {context}, k {k}", us)


def select_padded(table: Table) -> None:
    """The same selection through a page table that has room for more, as a captured step sees it."""
    from kernels.index_select import triton as kernels

    for context, room in ((8192, 8192), (8192, 131072), (32768, 32768), (32768, 131072)):
        q, w, pool, pages, sequence, visible = selection_inputs(1, context)
        wide = torch.zeros(1, room // 64, dtype=torch.int64, device="cuda")
        wide[:, : pages.shape[1]] = pages
        us = gpu_us(lambda a=(q, w, pool, wide, sequence, visible): kernels.index_select(*a, 2048))
        table.add("select padded", f"{context} keys, table for {room}, k 2048", us)


def select_ties(table: Table) -> None:
    """Adversarial scores, 128 k entries: one head, width 16."""
    from kernels.index_select import triton as kernels

    context, k = 131072, 2048
    score = torch.rand(context, device="cuda")
    kinds = {
        "random": score,
        "99 % zeros": torch.where(score < 0.01, score, 0.0),
        "all equal": torch.ones_like(score),
        "five values": (score * 5).ceil(),
        "within 1e-5": 1 + score * 1e-5,
        "heavy tail": score.pow(-3),
    }
    q = torch.zeros(1, 1, 16, device="cuda", dtype=torch.float32)
    q[..., 0] = 1
    for name, values in kinds.items():
        keys = torch.zeros(context // 64, 64, 16, device="cuda")
        keys[..., 0] = values.view(-1, 64)
        args = (
            q, torch.ones(1, 1, device="cuda"), keys, torch.arange(context // 64, device="cuda")[None],
            torch.zeros(1, dtype=torch.int64, device="cuda"), torch.full((1,), context, device="cuda"), k,
        )  # fmt: skip
        us = gpu_us(lambda args=args: kernels.index_select(*args))
        table.add("select ties", f"128 k, {name}", us, None, "", "<= 2x random")


def select_prefill(table: Table) -> None:
    """Scores and exact top-k of 4096 queries."""
    from kernels.index_select import triton as kernels

    queries = 4096
    for heads, context in ((64, 8192), (64, 131072), (32, 131072)):
        q = torch.randn(queries, heads, 128, device="cuda").to(torch.float8_e4m3fn)
        w = torch.randn(queries, heads, device="cuda")
        pool, pages = packed_pool(context), torch.randperm(context // 64, device="cuda")[None]
        visible = torch.arange(context - queries + 1, context + 1, device="cuda")
        sequence = torch.zeros(queries, dtype=torch.int64, device="cuda")
        flop = 2 * heads * 128 * float(visible.sum())
        us = gpu_us(lambda a=(q, w, pool, pages, sequence, visible): kernels.index_select(*a, 2048), 3, graph=False)
        table.add(
            "select prefill",
            f"4096 x {context}, {heads} heads, with top-k 2048",
            us,
            flop / us / 1e6,
            "TFLOP/s",
            ">= 0.75x DeepGEMM",
        )
        try:
            import deep_gemm
        except ImportError:
            continue
        keys = torch.randn(context, 128, device="cuda").to(torch.float8_e4m3fn), torch.rand(context, device="cuda")
        begin, end = torch.zeros(queries, dtype=torch.int32, device="cuda"), visible.int()
        us = gpu_us(lambda a=(q, keys, w, begin, end): deep_gemm.fp8_mqa_logits(*a, clean_logits=False), 5, graph=False)
        table.add("select prefill", "  DeepGEMM scores alone", us, flop / us / 1e6, "TFLOP/s")


def dense(table: Table) -> None:
    """FP8 weights of DeepSeek-V3.2's layers: few tokens against the copy's bandwidth, many against torch's bfloat16."""
    from kernels.linear import triton as kernels

    for outputs, inputs in ((2112, 7168), (24576, 1536), (7168, 16384), (36864, 7168), (576, 7168)):
        codes = torch.randn(outputs, inputs, device="cuda").to(torch.float8_e4m3fn)
        scales = torch.rand(-(-outputs // 128), inputs // 128, device="cuda")
        weight = codes.to(torch.bfloat16)
        for tokens in (1, 8, 32, 256, 4096):
            x = torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16)
            few, work = tokens <= 32, 2 * tokens * outputs * inputs
            for name, read, run in (
                ("FP8", codes, lambda a=(x, codes, scales): kernels.linear_fp8(*a)),
                ("  torch bfloat16", weight, lambda a=(x, weight): F.linear(*a)),
            ):
                us = gpu_us(run)
                rate = (read.nbytes / us / 1e6, "TB/s") if few else (work / us / 1e6, "TFLOP/s")
                target = ">= 70 % of copy" if few and name == "FP8" else ""
                table.add("dense", f"{name} {outputs} x {inputs}, {tokens} tokens", us, *rate, target)


def small(table: Table) -> None:
    """The activation, and the choice of the next ids."""
    from kernels.sampling import sample_tokens
    from kernels.swiglu import reference
    from kernels.swiglu import triton as kernels

    for tokens in (1, 4096):
        x = torch.randn(tokens, 4096, device="cuda", dtype=torch.bfloat16)
        table.add("small", f"activation, {tokens} x 2048", gpu_us(lambda x=x: kernels.swiglu(x, 10.0)))
        table.add("small", f"  torch, {tokens} x 2048", gpu_us(lambda x=x: reference.swiglu(x, 10.0)))
    for rows in (1, 8):
        logits = torch.randn(rows, 129280, device="cuda")
        numbers = torch.tensor([[1.0, 0.6, 0.0, 0.95, 0.0, 0.5]], device="cuda").repeat(rows, 1)
        for name, greedy in (("greedy", True), ("top_p", False)):
            us = gpu_us(lambda a=(logits, numbers, None, greedy): sample_tokens(*a))
            table.add("small", f"next ids, {name}, {rows} rows of 129280", us)


def packed_experts(experts: int, rows: int, columns: int) -> Any:
    from kernels.experts import MxFp4Matrix

    codes = torch.randint(256, (experts, rows, columns // 2), dtype=torch.uint8, device="cuda")
    return MxFp4Matrix(codes, torch.randint(113, 127, (experts, rows, columns // 32), dtype=torch.uint8, device="cuda"))


def convert(table: Table) -> None:
    """MXFP4 to FP8 of one layer of 256 experts."""
    from kernels.experts import triton as kernels

    source = packed_experts(256, 2048, 4096)
    codes = torch.empty(256, 2048, 4096, dtype=torch.float8_e4m3fn, device="cuda")
    scale = torch.empty(256, 2048, 32, dtype=torch.uint8, device="cuda")
    us = gpu_us(lambda: kernels.convert_mxfp4_to_fp8(source, codes, scale), 10)
    moved = source.codes.nbytes + source.scale.nbytes + codes.nbytes
    table.add("convert", "256 x 2048 x 4096, 1 x 128 scales", us, moved / us / 1e6, "TB/s", ">= 3.88 TB/s (91 %)")


def expert_decode(table: Table) -> None:
    """One token, 6 of 256 experts, 4096 x 2048, straight from packed bytes."""
    from kernels.experts import triton as kernels

    gate_up, down = packed_experts(256, 4096, 4096), packed_experts(256, 4096, 2048)
    for tokens in (1, 4, 8):
        x = torch.randn(tokens, 4096, device="cuda", dtype=torch.bfloat16)
        ids = torch.stack([torch.randperm(256, device="cuda")[:6] for _ in range(tokens)])
        weights = torch.rand(tokens, 6, device="cuda")
        us = gpu_us(lambda a=(x, ids, weights): kernels.mxfp4_experts(*a, gate_up, down, 10.0))
        moved = tokens * 6 * (3 * 4096 * 2048 * 17 / 32)
        target = "<= 28 us" if tokens == 1 else ""
        table.add("expert decode", f"{tokens} tokens, all three launches", us, moved / us / 1e6, "TB/s", target)


def expert_prefill(table: Table) -> None:
    """4096 tokens, 6 of 256 experts, 4096 x 2048, from packed bytes through the FP8 workspace."""
    from kernels.experts import Fp8Matrix
    from kernels.experts import triton as kernels

    gate_up, down = packed_experts(256, 4096, 4096), packed_experts(256, 4096, 2048)

    def space(rows: int, columns: int) -> Fp8Matrix:
        codes = torch.empty(256, rows, columns, dtype=torch.float8_e4m3fn, device="cuda")
        return Fp8Matrix(codes, torch.empty(256, rows, columns // 128, dtype=torch.uint8, device="cuda"))

    spaces = space(4096, 4096), space(4096, 2048)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    ids = torch.rand(4096, 256, device="cuda").topk(6).indices
    weights = torch.rand(4096, 6, device="cuda")
    flop = 2 * 4096 * 6 * 3 * 4096 * 2048

    def fill() -> None:
        for source, target in zip((gate_up, down), spaces, strict=True):
            kernels.convert_mxfp4_to_fp8(source, *target)

    us = gpu_us(fill, 5)
    table.add("expert prefill", "conversion of the layer", us)
    us = gpu_us(lambda: kernels.fp8_experts(x, ids, weights, *spaces, 10.0), 5)
    table.add("expert prefill", "routing, products and sum, 4096 tokens", us, flop / us / 1e6, "TFLOP/s")
    us = gpu_us(lambda: (fill(), kernels.fp8_experts(x, ids, weights, *spaces, 10.0)), 5)
    table.add("expert prefill", "both", us, flop / us / 1e6, "TFLOP/s", "<= 4000 us")


def attention_prefill(table: Table) -> None:
    """4096 queries over bfloat16 rows."""
    from kernels.sparse_attention import Rows
    from kernels.sparse_attention import triton as kernels

    for heads, entries, width, k in (
        (128, 8192, 576, 2048), (128, 131072, 576, 2048), (64, 8192, 576, 2048), (64, 131072, 576, 2048), (64, 8192, 512, 640),
    ):  # fmt: skip
        rope = width - 512
        q = torch.randn(4096, heads, 512, device="cuda", dtype=torch.bfloat16)
        r = torch.randn(4096, heads, 64, device="cuda", dtype=torch.bfloat16) if rope else None
        latent = torch.randn(entries, 512, device="cuda", dtype=torch.bfloat16)
        keys = torch.randn(entries, 64, device="cuda", dtype=torch.bfloat16) if rope else None
        scale = width**-0.5
        slots = torch.randint(entries, (4096, k), device="cuda", dtype=torch.int32)
        sources = (Rows(latent, keys, slots),)
        us = gpu_us(lambda a=(q, r, sources, scale): kernels.sparse_attention(*a, None), 3, graph=False)
        flop = 2 * 4096 * heads * k * (width + 512)
        what = f"{heads} heads, {entries} rows, k {k}, d {width}"
        table.add("sparse prefill", what, us, flop / us / 1e6, "TFLOP/s", ">= 0.75x FlashMLA")
        try:
            import flash_mla
        except ImportError:
            continue
        both = torch.cat([latent] + ([keys] if keys is not None else []), 1)[:, None].contiguous()
        full = torch.cat([q] + ([r] if r is not None else []), 2).contiguous()
        listed = slots[:, None].contiguous()
        us = gpu_us(
            lambda a=(full, both, listed, width): flash_mla.flash_mla_sparse_fwd(*a[:3], a[3] ** -0.5, use_legacy=True),
            5, graph=False,
        )  # fmt: skip
        table.add("sparse prefill", "  FlashMLA", us, flop / us / 1e6, "TFLOP/s")


def attention_decode(table: Table) -> None:
    """Single steps over packed 656-byte rows, k 2048."""
    from kernels.cache_rows import pack_latent_rows
    from kernels.sparse_attention import Rows
    from kernels.sparse_attention import triton as kernels

    entries, k = 131072, 2048
    pool = torch.cat(
        [
            pack_latent_rows(torch.randn(8192, 512, device="cuda"), torch.randn(8192, 64, device="cuda"))
            for _ in range(entries // 8192)
        ]
    )
    for heads in (128, 64):
        for batch in (1, 8, 64):
            q = torch.randn(batch, heads, 512, device="cuda", dtype=torch.bfloat16)
            r = torch.randn(batch, heads, 64, device="cuda", dtype=torch.bfloat16)
            slots = torch.randint(entries, (batch, k), device="cuda", dtype=torch.int32)
            args = (q, r, (Rows(pool, None, slots),), 576**-0.5, None)
            us = gpu_us(lambda a=args: kernels.sparse_attention(*a))
            flop = 2 * batch * heads * k * 1088
            target = {1: "<= FlashMLA", 64: ">= 0.75x FlashMLA"}.get(batch, "")
            table.add(
                "sparse decode", f"{heads} heads, batch {batch}, 656 B rows", us, flop / us / 1e6, "TFLOP/s", target
            )
            try:
                import flash_mla
            except ImportError:
                continue
            meta, _ = flash_mla.get_mla_metadata()
            full = torch.cat([q, r], 2)[:, None].contiguous()
            listed = slots[:, None].contiguous()
            cache = pool.view(-1, 64, 1, 656).view(torch.float8_e4m3fn)
            us = gpu_us(
                lambda a=(full, cache, None, None, 512, meta), i=listed: flash_mla.flash_mla_with_kvcache(
                    *a, softmax_scale=576**-0.5, is_fp8_kvcache=True, indices=i, use_legacy=True
                ), graph=False,
            )  # fmt: skip
            table.add("sparse decode", "  FlashMLA (eager)", us, flop / us / 1e6, "TFLOP/s")


def cpu_experts(table: Table) -> None:
    """Packed MXFP4 against torch on decoded weights, 4096 x 4096."""
    from kernels.experts import cpu

    code = cpu._library()
    codes = torch.randint(256, (4096, 2048), dtype=torch.uint8)
    scale = torch.randint(113, 127, (4096, 128), dtype=torch.uint8)
    weights = torch.randn(4096, 4096)
    for tokens in (1, 4, 8):
        x = torch.randn(tokens, 4096)
        table.add(
            "cpu experts",
            f"packed, {tokens} tokens",
            cpu_us(lambda x=x: cpu._matvec(code, codes, scale, x)),
            None,
            "",
            "<= torch",
        )
        table.add("cpu experts", f"  torch float32, {tokens} tokens", cpu_us(lambda x=x: F.linear(x, weights)))


def cpu_selection(table: Table) -> None:
    """Index selection and small attention on the CPU against torch."""
    from kernels.choose import use
    from kernels.index_select import index_select
    from kernels.sparse_attention import Rows, sparse_attention

    pages = 512
    args = (
        torch.randn(1, 64, 128), torch.randn(1, 64), torch.randn(pages, 64, 128), torch.randperm(pages)[None],
        torch.tensor([0]), torch.tensor([pages * 64]), 2048,
    )  # fmt: skip
    rows = Rows(torch.randn(4096, 128), torch.randn(4096, 32), torch.randint(4096, (1, 64)))
    small = (torch.randn(1, 8, 128), torch.randn(1, 8, 32), (rows,), 0.1, None)
    for kind in ("cpu", "reference"):
        with use("index_select", kind), use("sparse_attention", kind):  # type: ignore[arg-type]
            table.add("cpu selection", f"{kind}: 32 k entries, 64 heads", cpu_us(lambda: index_select(*args)))
            table.add("cpu selection", f"{kind}: attention, 8 heads, 64 rows", cpu_us(lambda: sparse_attention(*small)))


GPU = (
    ceilings,
    convert,
    expert_decode,
    expert_prefill,
    select_decode,
    select_padded,
    select_ties,
    dense,
    small,
    attention_decode,
    attention_prefill,
    select_prefill,
)
CPU = (cpu_experts, cpu_selection)


def sections() -> Iterator[Callable[[Table], None]]:
    if torch.cuda.is_available():
        yield from GPU
    yield from CPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of sections")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    table = Table()
    with torch.inference_mode():
        for section in sections():
            if chosen.only and section.__name__ not in chosen.only:
                continue
            try:
                section(table)
            except Exception:
                print(f"{section.__name__} failed", flush=True)
                traceback.print_exc(limit=-4)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in table.rows], indent=1))


if __name__ == "__main__":
    main()
