"""Stage: train. Runs for a while, saves, and goes on from there when it is started again.

    python -m assets.training.train WORK RUN --total-seconds 840 --seconds 560
    python -m assets.training.train WORK RUN --shape tiny --steps 20 --processes 0      (on a CPU)

The first part attends densely, the second to the index's choice; the last eighth rounds the experts to MXFP4. With
--total-seconds the parts are parts of the time of all starts, so that the schedule ends when the time does.
RUN/last.pt is the newest state, RUN/ema.pt the average of the newest weights, RUN/best.pt the weights of the second part
with the least loss on held-out teacher text.
"""

from __future__ import annotations

import argparse
import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.training.chats.mix import read_chats
from assets.training.documents import ANSWER_WEIGHT, Encoded, pack_all
from assets.training.export import load_values
from assets.training.feed import TINY_PLAN, DataMaker, Feeder, Plan, held_documents
from assets.training.model.layers import MixtureOfExperts
from assets.training.model.optimizer import Average, Optimizer, rate_at
from assets.training.model.twin import Losses, Stage, TokenRows, Twin
from assets.training.shape import SHAPES

SPARSE_FROM, QUANTIZED_FROM = 0.45, 0.875  # parts of the run
INDEX_ROWS = {False: 32, True: 8}  # rows on which the index is trained, of a batch of short and of long rows
WARM_STEPS = 100
BALANCE = 1e-3  # how fast the router's bias follows the load
LOG_Z = 1e-4
PATIENCE = 4  # evaluations without progress on held-out text before teacher chats become rare
HELD_TOGETHER = 48  # held-out conversations in one product


@dataclass
class Progress:
    """Everything beside weights that a restart needs."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of all starts
    best_text: float = math.inf
    stale: int = 0  # evaluations since the last best one
    sparse: bool = False  # whether best_text was measured with the index's choice


class Window:
    """Sums over the steps since the last line of history. Stays on the device: reading a number waits for the GPU."""

    def __init__(self, device: str) -> None:
        self.steps = 0
        self.sums, self.load = torch.zeros(4, device=device), torch.zeros((), device=device)

    @torch.no_grad()
    def add(self, losses: Losses, loads: Tensor) -> None:
        self.steps += 1
        self.sums += torch.stack([losses.cross_entropy, losses.right, losses.weight, losses.index])
        self.load = torch.maximum(self.load, loads.max())

    def means(self) -> dict[str, float]:
        cross, right, weight, index = self.sums.tolist()
        weight = max(weight, 1)
        means = {"loss": cross / weight, "accuracy": right / weight, "index": index / max(self.steps, 1)}
        return {**means, "load": float(self.load)}


class Saver:
    """Writes files beside the training, from copies; a crash leaves the old file."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None

    def save(self, files: dict[str, dict[str, Any]]) -> None:
        """Names and contents. Returns before they are written, but not before the files of the last call are."""
        copies = on_cpu(files)
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(copies,))
        self._thread.start()

    def _write(self, files: dict[str, Any]) -> None:
        try:
            self.run.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                beside = self.run / f".{name}.part"
                torch.save(content, beside)
                beside.replace(self.run / name)
        except BaseException as problem:
            self._problem = problem

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._problem is not None:
            raise self._problem


def on_cpu(value: Any) -> Any:
    """The same with copies of all tensors."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {k: on_cpu(v) for k, v in value.items()}
    return [on_cpu(v) for v in value] if isinstance(value, list) else value


class Trainer:
    """One run, on a GPU compiled and with bf16 activations. On a CPU that is slow to start: `fast` asks for it."""

    def __init__(self, wishes: argparse.Namespace) -> None:
        self.begun = self.saved_at = time.monotonic()
        self.wishes = wishes
        self.cuda = wishes.device == "cuda"
        fast = self.cuda or wishes.fast
        self.dtype = torch.bfloat16 if fast else torch.float32
        torch.manual_seed(wishes.seed)
        plan = TINY_PLAN if wishes.shape == "tiny" else Plan().of_parts(wishes.parts)
        shape = SHAPES[wishes.shape]
        saved = self._saved()
        self.progress = Progress(**saved["progress"]) if saved else Progress()
        self.history: list[dict[str, Any]] = saved["history"] if saved else []
        self.seconds_before = self.progress.seconds
        # The data processes are forked before anything touches the GPU. Another seed after a restart: the same documents
        # again would be learned by heart.
        seed = wishes.seed + self.progress.step
        self.feeder = Feeder(wishes.work, shape, plan, wishes.chats, wishes.processes, seed, pinned=self.cuda)
        self.model = Twin(shape)
        if wishes.init is not None:
            load_values(wishes.init, self.model)
        if saved:
            self.model.load_state_dict(saved["model"])
        self.model.to(wishes.device)
        self.optimizer, self.average = Optimizer(self.model, fused=self.cuda), Average(self.model)
        if saved:
            self.optimizer.load(saved["optimizer"])
            self.average.load(saved["ema"])
        if fast:
            self.model.compile()
        moe = [layer.mlp for layer in self.model.layers if isinstance(layer.mlp, MixtureOfExperts)]  # type: ignore[union-attr]
        self.biases = [m.router.bias for m in moe]
        held = [c for p in wishes.held for c in read_chats(p)]
        documents = held_documents(DataMaker(wishes.work, shape, plan, [], 7), held, wishes.held_pictures)
        self.held = {name: list(self._held_rows(made, plan.short.tokens)) for name, made in documents.items()}
        self.feeder.lower_chats(wishes.chat_share)
        self.saver, self.window = Saver(wishes.run), Window(wishes.device)

    def _held_rows(self, made: list[Encoded], tokens: int) -> Iterator[TokenRows]:
        """Conversations with their own pictures, a few at a time, only answers counted, on the device."""
        for first in range(0, len(made), HELD_TOGETHER):
            rows = pack_all(made[first : first + HELD_TOGETHER], tokens)
            answers = torch.where(rows.weight == ANSWER_WEIGHT, rows.weight, 0)
            yield replace(rows, weight=answers).to(self.wishes.device)

    def _saved(self) -> dict[str, Any] | None:
        """The state of an earlier start of this run, if there was one."""
        path = self.wishes.run / "last.pt"
        if not path.exists():
            return None
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        assert saved["shape"] == self.wishes.shape, f"{path} holds a {saved['shape']} model"
        return saved

    def _weights(self) -> dict[str, Any]:
        """What the exporter needs."""
        common = {"shape": self.wishes.shape, "history": list(self.history), "tokens": self.progress.tokens}
        return {"model": self.model.state_dict(), **common}

    def save(self) -> None:
        """last.pt and ema.pt."""
        self.progress.seconds = self.seconds_before + time.monotonic() - self.begun
        self.saved_at = time.monotonic()
        weights = self._weights()
        state = {
            "optimizer": self.optimizer.state(),
            "ema": self.average.state(),
            "progress": dict(vars(self.progress)),
        }
        averaged = {**weights, "model": {**weights["model"], **self.average.values}}
        self.saver.save({"last.pt": {**weights, **state}, "ema.pt": averaged})

    def part(self) -> float:
        """How much of the whole run is behind, 0..1."""
        if self.wishes.total_seconds is None:
            return self.progress.step / self.wishes.steps
        return (self.seconds_before + time.monotonic() - self.begun) / self.wishes.total_seconds

    def stage(self, long: bool, part: float) -> Stage:
        rows = max(1, INDEX_ROWS[long] * self.wishes.parts // 16)
        return Stage(part >= self.wishes.sparse_from, part >= self.wishes.quantized_from, rows)

    def step(self, long: bool, rows: TokenRows) -> None:
        """Nothing here waits for the GPU."""
        part = self.part()
        losses = self.model.losses(rows.to(self.wishes.device), self.stage(long, part), self.dtype)
        total = (losses.cross_entropy + LOG_Z * losses.log_z) / losses.weight.clamp_min(1) + losses.index
        total.backward()
        warm = WARM_STEPS if self.wishes.total_seconds is not None else max(1, self.wishes.steps // 50)
        self.optimizer.step(rate_at(part, self.wishes.rate) * min(1.0, (self.progress.step + 1) / warm))
        self.model.zero_grad(set_to_none=True)
        self.average.update()
        with torch.no_grad():
            share = self.model.shape.chosen_experts / self.model.shape.experts
            loads = torch.stack(losses.loads)
            torch._foreach_add_(self.biases, list((BALANCE * torch.sign(share - loads)).unbind()))
        self.window.add(losses, loads)
        self.progress.step += 1
        self.progress.tokens += int(rows.ids.numel())

    @torch.no_grad()
    def held_losses(self) -> dict[str, float]:
        """Loss per answer token on fixed held-out rows, sparse as the engine computes it."""
        stage = Stage(sparse=self.stage(False, self.part()).sparse, plain=True)
        found = {}
        for name, parts in self.held.items():
            losses = [self.model.losses(rows, stage, self.dtype) for rows in parts]
            sums = torch.stack([torch.stack([v.cross_entropy, v.weight]) for v in losses]).sum(0).tolist()
            found[f"held_{name}"] = sums[0] / max(sums[1], 1)
        return found

    def evaluate(self) -> None:
        """One line of history; keeps the best weights for text, and thins teacher chats out when they are overlearned."""
        progress = self.progress
        entry: dict[str, Any] = {
            "step": progress.step,
            "tokens": progress.tokens,
            "part": self.part(),
            "seconds": round(time.monotonic() - self.begun, 1),
            "waited": round(self.feeder.waited_seconds, 1),
            **self.window.means(),
            **self.held_losses(),
        }
        self.window = Window(self.wishes.device)
        assert math.isfinite(entry["loss"]), f"the loss is {entry['loss']} at step {progress.step}"
        self.history.append(entry)
        self._show(entry)
        text = entry.get("held_text")
        if text is None:
            return
        sparse = self.stage(False, self.part()).sparse
        if sparse and not progress.sparse:  # the engine always is: what was best when dense does not count any more
            progress.best_text, progress.stale, progress.sparse = math.inf, 0, True
        if text < progress.best_text:
            progress.best_text, progress.stale = text, 0
            if sparse:
                self.saver.save({"best.pt": self._weights()})
        else:
            progress.stale += 1
        if progress.stale >= PATIENCE:
            self.feeder.lower_chats(min(0.2, self.wishes.chat_share))

    def _show(self, entry: dict[str, Any]) -> None:
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in entry.items()}), flush=True)

    def _is_over(self, deadline: float) -> bool:
        return self.part() >= 1 or time.monotonic() > deadline

    def train(self) -> None:
        deadline = self.begun + self.wishes.seconds
        for long, rows in self.feeder.batches(self.progress.step):
            if self._is_over(deadline):
                break
            self.step(long, rows)
            if self.progress.step % self.wishes.every == 0:
                self.evaluate()
            if time.monotonic() - self.saved_at > self.wishes.save_seconds:
                self.save()
        self.feeder.close()
        if self.window.steps:
            self.evaluate()
        if self.history:
            self.average.swap()
            averaged = {f"ema_{name}": loss for name, loss in self.held_losses().items()}
            self.average.swap()
            self._show(averaged)
            self.history[-1] |= averaged
        self.save()
        self.saver.wait()
        print(
            f"{self.progress.step} steps, {self.progress.tokens / 1e6:.1f} M tokens, {self.part():.1%} of the run",
            flush=True,
        )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m assets.training.train", description=__doc__)
    parser.add_argument("work", type=Path, help="folder of the sources and tokenizer stages")
    parser.add_argument("run", type=Path, help="folder for weights and the log")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="full")
    parser.add_argument("--steps", type=int, default=6000, help="of the whole run, over all its restarts")
    parser.add_argument(
        "--total-seconds", type=float, help="of the whole run, over all its restarts, instead of --steps"
    )
    parser.add_argument("--seconds", type=float, default=540, help="of this start; saving takes some more")
    parser.add_argument("--save-seconds", type=float, default=75, help="between saves")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument(
        "--sparse-from", type=float, default=SPARSE_FROM, help="part of the run; 0 for weights trained so"
    )
    parser.add_argument("--quantized-from", type=float, default=QUANTIZED_FROM, help="part of the run")
    parser.add_argument("--parts", type=int, default=16, help="of 4096 tokens in a batch")
    parser.add_argument(
        "--chat-share", type=float, default=1.0, help="of the teacher chats, the others become templates"
    )
    parser.add_argument("--fast", action="store_true", help="compile and compute in bfloat16 on a CPU, too")
    parser.add_argument("--every", type=int, default=200, help="steps between log lines")
    parser.add_argument("--chats", type=Path, nargs="*", default=[])
    parser.add_argument("--held", type=Path, nargs="*", default=[])
    parser.add_argument("--held-pictures", type=int, default=200)
    parser.add_argument("--init", type=Path, help="start from an exported checkpoint; the tokenizer must be its own")
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def main(arguments: list[str] | None = None) -> None:
    Trainer(parser().parse_args(arguments)).train()


if __name__ == "__main__":
    main()
