"""MODEL_CARD.md of the exported model, filled with what was measured and what it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CARD = """# Day Zero built-in model

The small model the app opens with. It has the architecture of `hy_v4_vl` (latent attention with a token indexer and
shared index lists, sinks, output gate, hyper-connections, mixture of experts, vision tower) in the published layout:
MXFP4 experts, MXFP8 projections. It was trained from nothing with `assets/training`; no other model's weights are in it.

## What it can do
Name colours, shapes, places, counts and relations in simple drawings; read bar and line charts, printed numbers and short
words; name everyday things from icons; small sums, capitals, days, opposites, spelling, short definitions; remember what
it was told in the conversation; small talk.

## What it cannot do
Photographs, people, long or nested reasoning, facts it was not shown, code, translation, news, medical or legal advice.
Free conversation is fluent more often than it is right. Check everything that matters.

## Training
{training}

## Measured
Greedy, on held-out data drawn by separate code, through this engine (`python -m assets.training.evaluate`).

{scores}

## Sources and licences
{sources}
"""


def write_card(
    out: Path, history: list[dict[str, Any]], tokens: int, scores: Path | None, sources: Path | None
) -> None:
    """Write the card beside the weights; parts that were not measured say so."""
    text = _CARD.format(
        training=_training(history, tokens),
        scores=_scores(scores),
        sources=_sources(sources),
    )
    (out / "MODEL_CARD.md").write_text(text, encoding="utf-8")


def _training(history: list[dict[str, Any]], tokens: int) -> str:
    if not history:
        return "No training log was given to the exporter."
    last = history[-1]
    best = min((h["held_text"] for h in history if "held_text" in h), default=None)
    held = "" if best is None else f" Best loss on held-out teacher text: {best:.3f} per token."
    return f"{tokens / 1e6:,.1f} M tokens, {last['step']:,} steps; training loss at the end {last['loss']:.3f}.{held}"


def _scores(path: Path | None) -> str:
    if path is None:
        return "Not measured yet."
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    lines = ["| task | items | score | wanted |", "|---|---|---|---|"]
    lines += [f"| {r['task']} | {r['n']} | {r['score']:.3g} | {r['threshold']:.3g} |" for r in rows]
    return "\n".join(lines)


def _sources(path: Path | None) -> str:
    if path is None:
        return "Only pictures and text made by the code of `assets/training`."
    rows = json.loads(path.read_text(encoding="utf-8"))
    lines = ["| source | version | licence | used for |", "|---|---|---|---|"]
    lines += [f"| {r['name']} | {r['version']} | {r['licence']} | {r['use']} |" for r in rows]
    return "\n".join(lines)
