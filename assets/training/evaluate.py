"""Stage: evaluate. Every row of the ability table on held-out data, greedy, through the product's own engine.

    python -m assets.training.evaluate assets/demo --work WORK --items 200
    python -m assets.training.evaluate assets/demo --items 40            quick; without WORK, things and fonts are simpler

Pictures and questions come from `heldout`. A score passes when it is at least the wanted one minus the sampling margin,
two standard errors of a proportion: 2 sqrt(p (1 - p) / n).
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image as Picture
from tokenizers import Tokenizer

from assets.training.chats.filter import repeats
from assets.training.chats.mix import Chat, chat_document, read_chats
from assets.training.documents import ANSWER_WEIGHT, Encoder
from assets.training.heldout.items import Ask, Item
from assets.training.heldout.tasks import TASKS, Tasks
from assets.training.material import Material
from assets.training.shape import Shape
from engine.api import Engine, EngineSettings, Finished, Image, Message, ReplyOptions, Text
from engine.runtime import open_runtime
from engine.scoring import ScorePrompt, score

TEXT_LOSS = 2.6  # wanted at most, per answer token of held-out teacher chats
CHAT_SHARE = (
    0.9  # of printed chats that end by themselves and do not loop; whether they keep to the topic is for a reader
)


@dataclass(frozen=True)
class Row:
    """One line of the table. `lower` marks a loss: less is better."""

    task: str
    n: int
    score: float
    threshold: float
    lower: bool = False

    @property
    def margin(self) -> float:
        p = self.threshold
        return 0.1 if self.lower else 2 * math.sqrt(p * (1 - p) / max(self.n, 1))

    @property
    def passes(self) -> bool:
        return self.score <= self.threshold + self.margin if self.lower else self.score >= self.threshold - self.margin


def _png(picture: Picture.Image) -> bytes:
    held = io.BytesIO()
    picture.save(held, "PNG")
    return held.getvalue()


class Examiner:
    """Asks one open engine, several conversations at a time."""

    def __init__(self, engine: Engine, max_tokens: int, at_once: int) -> None:
        self.engine, self.options = engine, ReplyOptions(temperature=0.0, max_tokens=max_tokens)
        self.at_once = at_once

    def answer(self, name: str, item: Item) -> tuple[list[str], str]:
        """The model's answers to all asks, and how the last one ended."""
        messages = [m for asked, told in item.before for m in (Message("user", asked), Message("assistant", told))]
        answers, reason = [], ""
        session = self.engine.start(name)
        for ask in item.asks:
            messages.append(Message("user", ask.text, tuple(Image(_png(p)) for p in ask.pictures)))
            text = ""
            for event in session.reply(messages, self.options):
                if isinstance(event, Text):
                    text += event.text
                if isinstance(event, Finished):
                    reason = event.reason
            messages.append(Message("assistant", text))
            answers.append(text)
        session.close()
        return answers, reason

    def run(self, items: Sequence[Item]) -> list[tuple[list[str], str]]:
        names = [f"{item.task} {number}" for number, item in enumerate(items)]
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(self.answer, names, items))


def text_loss(path: Path, chats: list[Chat], threads: int | None) -> float:
    """Mean loss per answer token, through the engine's scoring door."""
    encoder = Encoder(Tokenizer.from_file(str(path / "tokenizer.json")), Shape())
    runtime = open_runtime(path, EngineSettings(device="cpu", cache_tokens=4096, threads=threads))
    total, count = 0.0, 0
    for chat in chats:
        made = encoder.encode(chat_document(chat))
        counted = torch.tensor(made.weight) == ANSWER_WEIGHT
        logits = score(runtime, ScorePrompt(made.ids), 256)["logits"][:-1]
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(made.ids[1:]), reduction="none")
        total, count = total + float(losses[counted[:-1]].sum()), count + int(counted.sum())
    return total / max(count, 1)


def open_chats(examiner: Examiner, chats: list[Chat], out: list[dict[str, Any]]) -> float:
    """Share of answers to held-out first questions that end by themselves and do not loop; all are kept for reading."""
    items = [Item("chat", (Ask(chat[0]),), bool, "") for chat in chats]
    good = 0
    for chat, (answers, reason) in zip(chats, examiner.run(items), strict=True):
        fine = reason == "stop" and not repeats(answers[-1]) and bool(answers[-1].strip())
        good += fine
        out.append({"question": chat[0], "answer": answers[-1], "ended": reason, "fine": fine})
    return good / max(len(chats), 1)


def evaluate(wishes: argparse.Namespace) -> dict[str, Any]:
    """All rows, and the answers that were wrong."""
    material = Material.load(wishes.work) if wishes.work else Material.load(Path("/nonexistent"))
    held = wishes.work / "held_chats.jsonl.gz" if wishes.work else None
    chats = read_chats(held) if held is not None and held.exists() else []
    tasks = Tasks(material, chats)
    engine = Engine.open(wishes.checkpoint, EngineSettings(device=wishes.device, threads=wishes.threads))
    examiner = Examiner(engine, wishes.max_tokens, wishes.at_once)
    rows: list[Row] = []
    wrong: dict[str, list[dict[str, str]]] = {}
    samples: list[dict[str, Any]] = []
    for task in wishes.tasks or TASKS:
        start = time.monotonic()
        items = [tasks.make(task, number) for number in range(wishes.items)]
        good = 0
        for item, (answers, _) in zip(items, examiner.run(items), strict=True):
            if item.judge(answers[-1]):
                good += 1
            else:
                wrong.setdefault(task, []).append(
                    {"asked": item.asks[-1].text, "wanted": item.wanted, "said": answers[-1]}
                )
        rows.append(Row(task, len(items), good / len(items), TASKS[task][1]))
        print(f"{_line(rows[-1])}  {time.monotonic() - start:.0f} s", flush=True)
    if not wishes.tasks:
        few = chats[: wishes.items] or [["How can I sleep better?", "Go to bed early and keep your room dark."]]
        rows.append(Row("chat_ends", len(few[:20]), open_chats(examiner, few[:20], samples), CHAT_SHARE))
        rows.append(Row("text_loss", len(few), text_loss(wishes.checkpoint, few, wishes.threads), TEXT_LOSS, True))
        print(*map(_line, rows[-2:]), sep="\n", flush=True)
    engine.close()
    table = [{**vars(r), "margin": r.margin, "passes": r.passes} for r in rows]
    return {"rows": table, "wrong": wrong, "samples": samples}


def _line(row: Row) -> str:
    sign = "<=" if row.lower else ">="
    verdict = "ok" if row.passes else "MISSED"
    return f"{row.task:12} n={row.n:<4} {row.score:7.3f} {sign} {row.threshold:.2f} (margin {row.margin:.3f}) {verdict}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m assets.training.evaluate", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--work", type=Path, help="folder of the sources stage: held-out fonts, words, icons and chats")
    parser.add_argument("--items", type=int, default=200, help="per task")
    parser.add_argument("--tasks", nargs="*", choices=tuple(TASKS))
    parser.add_argument("--json", type=Path, help="write everything here, wrong answers included")
    parser.add_argument("--max-tokens", type=int, default=80)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    wishes = parser.parse_args(arguments)
    found = evaluate(wishes)
    if wishes.json:
        wishes.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for task, cases in found["wrong"].items():
        for case in cases[:2]:
            print(f"  {task}: {case['asked']!r} wanted {case['wanted']!r}, said {case['said']!r}")
    for sample in found["samples"]:
        print(f"  {sample['question']!r} -> {sample['answer']!r} ({sample['ended']})")
    return 0 if all(r["passes"] for r in found["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
