"""The panel that shows where memory goes: the plan as stacked bars, and what this process uses now. Knows no gradio."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from app import saved
from app.chats import Chats
from app.opening import ModelStatus

_TIERS = {"GPU": "GPU memory", "RAM": "RAM", "disk": "Disk"}
_COLOURS = 6


@dataclass(frozen=True)
class Usage:
    """What is measured at this moment."""

    process_bytes: int
    state_bytes: int
    tokens_per_second: float
    context_tokens: int
    context_limit_tokens: int
    experts: Any = None  # ExpertUse of spread experts


def show_memory(chats: Chats, conversation_id: str) -> str:
    """The panel for the shown conversation (empty: a new one), measured now."""
    engine, info = chats.model.engine, chats.model.status.info
    generation = chats.running(conversation_id) if conversation_id else None
    path = chats.path(conversation_id) if conversation_id else []
    stats = next((one.stats for one in reversed(path) if one.stats), {})
    usage = Usage(
        process_bytes=int(psutil.Process().memory_info().rss),
        state_bytes=saved.size_bytes(chats.store.directory),
        tokens_per_second=0.0 if generation is None else generation.tokens_per_second,
        context_tokens=stats.get("context_tokens", 0),
        context_limit_tokens=0 if info is None else info.context_tokens,
        experts=None if engine is None else engine.expert_use,
    )
    return memory_panel(None if engine is None else engine.plan, usage, chats.model.status)


def memory_panel(plan: Any, usage: Usage, model: ModelStatus) -> str:
    """The panel as HTML; `plan` is None until the model is open."""
    parts = [_now(usage)]
    if plan is None:
        parts.append(f"<p>{html.escape(model.sentence)}</p>")
    else:
        for tier, name in _TIERS.items():
            lines = [line for line in plan.lines if line.tier == tier]
            if lines:
                parts.append(_tier(name, lines, _budget(plan, tier)))
        parts += [f'<p class="dz-warning">{html.escape(warning)}</p>' for warning in plan.warnings]
    return f'<div class="dz-memory">{"".join(parts)}</div>'


def _now(usage: Usage) -> str:
    used = usage.context_tokens / (usage.context_limit_tokens or 1)
    facts = [
        ("This process", size(usage.process_bytes), "memory that the system has given to the app right now"),
        ("Saved state", size(usage.state_bytes), "on the disk, so that conversations are not read again"),
        (
            "Context",
            f"{usage.context_tokens:,} of {usage.context_limit_tokens:,} tokens" if usage.context_limit_tokens else "–",
            f"{100 * used:.0f} % of what this conversation may hold",
        ),
        ("Speed", f"{usage.tokens_per_second:.0f} tokens/s" if usage.tokens_per_second else "–", "right now"),
    ]
    if usage.experts is not None:
        found = usage.experts
        hint = f"of the experts asked for were in GPU memory; {found.from_ram:,} came from RAM, {found.from_disk:,} from disk"
        facts.append(("Experts at hand", f"{100 * found.hit_rate:.0f} %", hint))
    cells = "".join(
        f'<div title="{html.escape(hint)}"><span>{name}</span><b>{html.escape(value)}</b></div>'
        for name, value, hint in facts
    )
    return f'<div class="dz-now">{cells}</div>'


def _budget(plan: Any, tier: str) -> int:
    """What may be used of a tier; 0 where nothing limits it."""
    if tier == "RAM":
        return int(plan.ram_budget_bytes)
    return int(plan.budget_bytes) if tier == "GPU" else 0


def _tier(name: str, lines: Sequence[Any], budget_bytes: int) -> str:
    """One bar of a tier's uses, the largest first."""
    total = sum(line.nbytes for line in lines)
    whole = max(total, 1)
    bars, legend = [], []
    for number, line in enumerate(sorted(lines, key=lambda line: -line.nbytes)):
        colour = f"dz-c{number % _COLOURS}"
        hint = html.escape(f"{line.label}: {size(line.nbytes)}, {line.reason}")
        bars.append(f'<span class="{colour}" style="width:{100 * line.nbytes / whole:.2f}%" title="{hint}"></span>')
        legend.append(f'<li title="{hint}"><i class="{colour}"></i>{html.escape(line.label)} {size(line.nbytes)}</li>')
    of = f" of {size(budget_bytes)} that may be used" if budget_bytes else ""
    return (
        f'<div class="dz-tier"><div class="dz-tier-name"><b>{name}</b> {size(total)}{of}</div>'
        f'<div class="dz-stack">{"".join(bars)}</div><ul>{"".join(legend)}</ul></div>'
    )


def size(nbytes: int) -> str:
    """A byte count for people."""
    if nbytes >= 1 << 30:
        return f"{nbytes / (1 << 30):,.1f} GiB"
    if nbytes >= 1 << 20:
        return f"{nbytes / (1 << 20):,.0f} MiB"
    return f"{nbytes / (1 << 10):,.0f} KiB"
