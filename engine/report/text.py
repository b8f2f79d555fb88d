"""The Day-0 report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.memory.plan import gib
from engine.report.check import CheckReport


def table(rows: Iterable[Sequence[object]]) -> list[str]:
    """Left-aligned columns."""
    texts = [[str(cell) for cell in row] for row in rows]
    if not texts:
        return []
    widths = [max(len(row[i]) for row in texts) for i in range(len(texts[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts
    ]


def report_text(report: CheckReport) -> str:
    """All parts of the report, one below the other; the verdict comes last."""
    lines = [f"model      {report.model}"]
    if report.family is not None:
        lines.append(f"family     {report.family}: {report.why}")
    if report.layers:
        lines += [
            f"parameters {report.parameters:,}",
            "",
            "layers",
            *table((n, kind) for kind, n in report.layers.items()),
        ]
    if report.operators:
        head = ("operator", "reference", "cpu", "triton")
        rows = [(o.name, o.reference, o.cpu, o.triton) for o in report.operators]
        lines += ["", "operators needed, and whether they can run here", *table([head, *rows])]
    if report.tensors:
        lines += ["", "tensors    " + ", ".join(f"{n:,} {name}" for name, n in report.tensors.items())]
        for name, examples in report.tensor_examples.items():
            lines += [f"  {name}: {example}" for example in examples]
    if report.bytes_by_kind:
        lines += ["", "bytes on disk", *table((kind, gib(n)) for kind, n in report.bytes_by_kind.items())]
    if report.context_tokens:
        lines += [
            "",
            f"context    {report.context_tokens:,} tokens, {report.kv_bytes_per_token:,.0f} bytes of cache per token",
        ]
        if report.kv_bytes_per_conversation:
            lines.append(f"           and {gib(report.kv_bytes_per_conversation)} per conversation")
    if report.memory:
        lines += ["", "memory", *(f"  {line}" for line in report.memory.splitlines())]
    if report.self_check is not None:
        check = report.self_check
        lines += [
            "",
            f"self-check {check.layers} layers, {check.tokens} tokens: chosen kernels against reference {check.difference:.1e}",
            f"           prefill {check.chosen_ms:.1f} ms (reference {check.reference_ms:.1f}), one step {check.decode_ms:.1f} ms",
        ]
    lines += _nearest_lines(report)
    lines += [
        "",
        "verdict    " + ("this model would run here" if report.would_run else "this model would not run here"),
    ]
    lines += [f"  {problem}" for problem in report.problems]
    return "\n".join(lines)


def _nearest_lines(report: CheckReport) -> list[str]:
    near = report.nearest
    if near is None:
        return []
    lines = ["", f"nearest    {near.family}: knows {near.shared_names:.0%} of the tensor-name patterns"]
    for title, items in (
        ("config keys it does not know", near.unknown_keys),
        ("tensor names it does not know", near.unknown_names),
        ("tensor names it expects and that are absent", near.absent_names),
    ):
        if items:
            lines += [f"  {title}:", *(f"    {item}" for item in items[:40])]
            if len(items) > 40:
                lines.append(f"    and {len(items) - 40} more")
    if near.parse_fault:
        lines.append(f"  its reading of the config ends with: {near.parse_fault}")
    return lines
