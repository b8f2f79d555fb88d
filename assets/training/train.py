"""Stage: train. Runs for a while, saves, and goes on from there when it is started again.

    python -m assets.training.train WORK RUN --steps 6000 --seconds 540
    python -m assets.training.train WORK RUN --shape tiny --steps 20 --processes 0      (on a CPU)

The first part attends densely, the second to the index's choice; the last eighth rounds the experts to MXFP4.
RUN/last.pt is the newest state; RUN/best.pt the one of the second part with the least loss on held-out teacher text.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from assets.training.chats.mix import read_chats
from assets.training.documents import ANSWER_WEIGHT, pack_all
from assets.training.export import load_values
from assets.training.feed import TINY_PLAN, DataMaker, Feeder, Plan, held_documents
from assets.training.model.layers import MixtureOfExperts
from assets.training.model.optimizer import Optimizer, rate_at
from assets.training.model.twin import Losses, Stage, TokenRows, Twin
from assets.training.shape import SHAPES

SPARSE_FROM, QUANTIZED_FROM = 0.45, 0.875  # parts of the run
BALANCE = 1e-3  # how fast the router's bias follows the load
LOG_Z = 1e-4
PATIENCE = 4  # evaluations without progress on held-out text before teacher chats become rare


@dataclass
class Progress:
    """Everything beside weights that a restart needs."""

    step: int = 0
    tokens: int = 0
    best_text: float = math.inf
    stale: int = 0  # evaluations since the last best one
    sparse: bool = False  # whether best_text was measured with the index's choice


class Trainer:
    """One run. `device` "cuda" compiles and uses bf16 activations; "cpu" is for tests."""

    def __init__(self, wishes: argparse.Namespace) -> None:
        self.begun = time.monotonic()
        self.run: Path = wishes.run
        self.wishes = wishes
        self.cuda = wishes.device == "cuda"
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        torch.manual_seed(wishes.seed)
        torch.set_float32_matmul_precision("high")
        plan = Plan() if wishes.shape == "full" else TINY_PLAN
        shape = SHAPES[wishes.shape]
        saved = self._saved()
        self.progress = Progress(**saved["progress"]) if saved else Progress()
        self.history: list[dict[str, Any]] = saved["history"] if saved else []
        # The data processes are forked before anything touches the GPU. Another seed after a restart: the same documents
        # again would be learned by heart.
        seed = wishes.seed + self.progress.step
        self.feeder = Feeder(wishes.work, shape, plan, wishes.chats, wishes.processes, seed)
        self.model = Twin(shape)
        if wishes.init is not None:
            load_values(wishes.init, self.model)
        if saved:
            self.model.load_state_dict(saved["model"])
        self.model.to(wishes.device)
        self.optimizer = Optimizer(self.model, fused=self.cuda)
        if saved:
            self.optimizer.load(saved["optimizer"])
        if self.cuda:
            self.model.compile()
        self.moe = [layer.mlp for layer in self.model.layers if isinstance(layer.mlp, MixtureOfExperts)]  # type: ignore[union-attr]
        held = [c for p in wishes.held for c in read_chats(p)]
        documents = held_documents(DataMaker(wishes.work, shape, plan, [], 7), held, wishes.held_pictures)
        self.held = {name: pack_all(made, plan.short.tokens) for name, made in documents.items()}

    def _saved(self) -> dict[str, Any] | None:
        """The state of an earlier start of this run, if there was one."""
        path = self.run / "last.pt"
        if not path.exists():
            return None
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        assert saved["shape"] == self.wishes.shape, f"{path} holds a {saved['shape']} model"
        return saved

    def save(self, name: str, whole: bool = True) -> None:
        """Weights, and with `whole` what a restart needs; a crash leaves the old file."""
        self.run.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {
            "shape": self.wishes.shape,
            "model": {n: v.detach().cpu() for n, v in self.model.state_dict().items()},
            "history": self.history,
            "tokens": self.progress.tokens,
        }
        if whole:
            content |= {"optimizer": self.optimizer.state(), "progress": vars(self.progress)}
        beside = self.run / f".{name}.part"
        torch.save(content, beside)
        beside.replace(self.run / name)

    def stage(self, long: bool) -> Stage:
        """What the step computes; long rows are few, so their index loss covers fewer rows."""
        part = self.progress.step / self.wishes.steps
        sparse = part >= SPARSE_FROM
        rows = (8 if long else 128) if sparse else (4 if long else 32)
        return Stage(sparse, part >= QUANTIZED_FROM, rows)

    def step(self, long: bool, rows: TokenRows) -> Losses:
        losses = self.model.losses(rows.to(self.wishes.device), self.stage(long), self.dtype)
        total = (losses.cross_entropy + LOG_Z * losses.log_z) / losses.weight.clamp_min(1) + losses.index
        total.backward()
        self.optimizer.step(rate_at(self.progress.step / self.wishes.steps, self.wishes.rate))
        self.model.zero_grad(set_to_none=True)
        with torch.no_grad():
            share = self.model.shape.chosen_experts / self.model.shape.experts
            for moe, load in zip(self.moe, losses.loads, strict=True):
                moe.router.bias += BALANCE * torch.sign(share - load)
        self.progress.step += 1
        self.progress.tokens += int(rows.ids.numel())
        return losses

    @torch.no_grad()
    def held_losses(self) -> dict[str, float]:
        """Loss per answer token on fixed held-out rows, sparse as the engine computes it."""
        found = {}
        for name, rows in self.held.items():
            stage = Stage(sparse=self.stage(False).sparse, plain=True)
            answers = torch.where(rows.weight == ANSWER_WEIGHT, rows.weight, 0)
            counted = replace(rows, weight=answers)
            loss = weight = 0.0
            for first in range(0, rows.ids.shape[0], 32):
                part = counted.part(first, first + 32).to(self.wishes.device)
                losses = self.model.losses(part, stage, self.dtype)
                loss, weight = loss + float(losses.cross_entropy), weight + float(losses.weight)
            found[f"held_{name}"] = loss / max(weight, 1)
        return found

    def evaluate(self, window: list[Losses]) -> None:
        """One line of history; keeps the best weights for text, and thins teacher chats out when they are overlearned."""
        sums = [sum(float(getattr(w, k)) for w in window) for k in ("cross_entropy", "right", "weight", "index")]
        entry: dict[str, Any] = {
            "step": self.progress.step,
            "tokens": self.progress.tokens,
            "seconds": round(time.monotonic() - self.begun, 1),
            "loss": sums[0] / max(sums[2], 1),
            "accuracy": sums[1] / max(sums[2], 1),
            "index": sums[3] / len(window),
            "load": max((float(v.max()) for w in window for v in w.loads), default=0.0),
            "waited": round(self.feeder.waited_seconds, 1),
            **self.held_losses(),
        }
        assert math.isfinite(entry["loss"]), f"the loss is {entry['loss']} at step {self.progress.step}"
        self.history.append(entry)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in entry.items()}), flush=True)
        text = entry.get("held_text")
        if text is None:
            return
        progress, sparse = self.progress, self.stage(False).sparse
        if sparse and not progress.sparse:  # the engine always is: what was best when dense does not count any more
            progress.best_text, progress.stale, progress.sparse = math.inf, 0, True
        if text < progress.best_text:
            progress.best_text, progress.stale = text, 0
            if sparse:
                self.save("best.pt", whole=False)
        else:
            progress.stale += 1
        if self.progress.stale >= PATIENCE:
            self.feeder.lower_chats(0.2)

    def train(self) -> None:
        deadline = self.begun + self.wishes.seconds
        window: list[Losses] = []
        for long, rows in self.feeder.batches(self.progress.step):
            if self.progress.step >= self.wishes.steps or time.monotonic() > deadline:
                break
            losses = self.step(long, rows)
            window.append(Losses(*(v.detach() for v in losses[:5]), [load.detach() for load in losses.loads]))
            if self.progress.step % self.wishes.every == 0 or self.progress.step == self.wishes.steps:
                self.evaluate(window)
                window = []
        self.save("last.pt")
        self.feeder.close()
        print(
            f"{self.progress.step} of {self.wishes.steps} steps, {self.progress.tokens / 1e6:.1f} M tokens", flush=True
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.train", description=__doc__)
    parser.add_argument("work", type=Path, help="folder of the sources and tokenizer stages")
    parser.add_argument("run", type=Path, help="folder for weights and the log")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="full")
    parser.add_argument("--steps", type=int, default=6000, help="of the whole run, over all its restarts")
    parser.add_argument("--seconds", type=float, default=540, help="of this start")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--every", type=int, default=200, help="steps between log lines")
    parser.add_argument("--chats", type=Path, nargs="*", default=[])
    parser.add_argument("--held", type=Path, nargs="*", default=[])
    parser.add_argument("--held-pictures", type=int, default=200)
    parser.add_argument("--init", type=Path, help="start from an exported checkpoint of the same shape")
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    Trainer(parser.parse_args(arguments)).train()


if __name__ == "__main__":
    main()
