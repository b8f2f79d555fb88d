"""The run as a machine sees it: few graphs, schedules by time, restarts, batches from other processes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from assets.training import train, warm
from assets.training.documents import Packer
from assets.training.feed import TINY_PLAN, BatchSize, Chats, SharedBatch
from assets.training.model.optimizer import Average, Muon, rate_at
from assets.training.model.twin import Stage, TokenRows, Twin
from assets.training.shape import TINY
from assets.training.tokenizer import train_tokenizer

KINDS = [(long, sparse, quantized) for sparse in (False, True) for quantized in (False, True) for long in (False, True)]


def graphs_of(layers: int, kinds: list[tuple[bool, bool, bool]]) -> int:
    """Graphs that training steps on a model with so many layers need."""
    torch._dynamo.reset()
    seen = 0

    def counting(graph: torch.fx.GraphModule, _: list[Tensor]) -> object:
        nonlocal seen
        seen += 1
        return graph.forward

    model = Twin(replace(TINY, layers=layers, index_layers=(0, 1, 3), vision_layers=layers))
    model.compile(backend=counting)  # type: ignore[arg-type]
    sizes = {False: BatchSize(4, 64, 1, 1), True: BatchSize(2, 128, 1, 1)}
    for long, sparse, quantized in kinds:
        rows = warm.batch(sizes[long], TINY).to("cpu")
        losses = model.losses(rows, Stage(sparse, quantized, 1), torch.bfloat16)
        (losses.cross_entropy + losses.index).backward()
    torch._dynamo.reset()
    return seen


def test_the_whole_run_needs_few_graphs_however_many_layers() -> None:
    """A graph costs about ten seconds of a GPU's time. Four for attention by rows x index, two more when the index chooses,
    two of feed-forward, two of rounding, three of the eyes, two of the index loss, two at the end."""
    assert graphs_of(4, KINDS * 2) == 17
    assert graphs_of(6, KINDS) == 17


def test_warming_compiles_what_training_uses() -> None:
    apart = {kind: graphs_of(4, list(stages)) for kind, stages in warm.KINDS.items()}
    assert apart == {"short": 12, "long": 10, "short-sparse": 10, "long-sparse": 10}
    assert graphs_of(4, [k for stages in warm.KINDS.values() for k in stages]) == graphs_of(4, KINDS)


def test_both_kinds_of_batch_are_one_size_to_layers_without_attention() -> None:
    for plan in (TINY_PLAN, warm.Plan()):
        short, long = plan.short, plan.long
        assert short.rows * short.tokens * short.parts == long.rows * long.tokens * long.parts
        assert short.patch_rows * short.parts == long.patch_rows * long.parts


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    texts = ["the red circle is left of the blue square, or what else?"] * 9
    train_tokenizer(texts, TINY.vocab).save(str(folder / "tokenizer.json"))
    with gzip.open(folder / "chats.jsonl.gz", "wt") as file:
        file.writelines(json.dumps([f"What is {i}?", f"A number, {'one more ' * (i % 3)}é."]) + "\n" for i in range(50))
    return folder


def start(work: Path, run: Path, *more: str) -> None:
    common = ["--shape", "tiny", "--processes", "0", "--device", "cpu", "--every", "2", "--held-pictures", "1"]
    chats = ["--chats", str(work / "chats.jsonl.gz"), "--held", str(work / "chats.jsonl.gz")]
    train.main([str(work), str(run), *common, *chats, *more])


def test_a_schedule_by_time_goes_on_over_starts(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    stages: list[tuple[float, Stage]] = []
    real_step = train.Trainer.step

    def step(self: train.Trainer, long: bool, rows: TokenRows) -> None:
        stages.append((self.part(), self.stage(long, self.part())))
        real_step(self, long, rows)
        now[0] += 10

    monkeypatch.setattr(train.Trainer, "step", step)
    monkeypatch.setattr(train.time, "monotonic", lambda: now[0])
    wishes = ["--total-seconds", "100", "--seconds", "49", "--save-seconds", "25"]
    start(work, tmp_path, *wishes)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert saved["progress"]["step"] == 5 and saved["progress"]["seconds"] == 50
    assert saved["ema"]["updates"] == 5
    now[0] += 1000  # between the starts
    start(work, tmp_path, *wishes)
    assert [round(part, 2) for part, _ in stages] == [i / 10 for i in range(10)]
    assert [s.sparse for _, s in stages] == [False] * 5 + [True] * 5
    assert [s.quantized for _, s in stages] == [False] * 9 + [True]
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    assert [h["step"] for h in saved["history"]] == [2, 4, 5, 6, 8, 10]
    assert "ema_held_text" in saved["history"][2] and "ema_held_text" in saved["history"][-1]
    assert "100.0% of the run" in capsys.readouterr().out


def test_a_restart_continues_optimizer_average_and_history(work: Path, tmp_path: Path) -> None:
    start(work, tmp_path, "--steps", "3")
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    common = ["--shape", "tiny", "--processes", "0", "--device", "cpu"]
    trainer = train.Trainer(train.parser().parse_args([str(work), str(tmp_path), *common]))
    assert trainer.progress.step == 3 and trainer.history == saved["history"] and trainer.average.updates == 3
    assert all(torch.equal(v, saved["model"][n]) for n, v in trainer.model.state_dict().items())
    assert all(torch.equal(v, saved["ema"]["values"][n]) for n, v in trainer.average.values.items())
    pairs = zip(trainer.optimizer.muon.memory.values(), saved["optimizer"]["muon"], strict=True)
    assert all(torch.equal(a, b.float()) for a, b in pairs)
    assert {float(s["step"]) for s in trainer.optimizer.adam.state_dict()["state"].values()} == {3.0}
    averaged = torch.load(tmp_path / "ema.pt", weights_only=True)
    assert averaged["model"].keys() == saved["model"].keys() and averaged["history"] == saved["history"]
    assert torch.equal(averaged["model"]["norm"], saved["ema"]["values"]["norm"])
    assert not torch.equal(averaged["model"]["head"], saved["model"]["head"])


def test_a_start_from_weights_that_know_the_index_is_sparse_at_once(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[Stage] = []
    real_stage = train.Trainer.stage

    def stage(self: train.Trainer, long: bool, part: float) -> Stage:
        stages.append(real_stage(self, long, part))
        return stages[-1]

    monkeypatch.setattr(train.Trainer, "stage", stage)
    start(work, tmp_path, "--steps", "2", "--sparse-from", "0", "--quantized-from", "0", "--chat-share", "0")
    assert all(s.sparse and s.quantized for s in stages) and stages[0].index_rows == train.INDEX_ROWS[False]


def test_batches_of_fewer_parts_train_the_index_on_as_large_a_share() -> None:
    plan = warm.Plan().of_parts(2)
    assert (plan.short.parts, plan.long.parts) == (2, 2)
    assert plan.short.tokens == warm.Plan().short.tokens
    wishes = train.parser().parse_args(["w", "r", "--parts", "2"])
    stub = SimpleNamespace(wishes=wishes)
    assert [train.Trainer.stage(stub, long, 0.1).index_rows for long in (False, True)] == [4, 1]  # type: ignore[arg-type]


def test_files_are_written_whole_and_beside_the_training(tmp_path: Path) -> None:
    saver = train.Saver(tmp_path / "new")
    value = torch.zeros(3)
    saver.save({"a.pt": {"value": [value]}})
    value += 1
    saver.save({"b.pt": {"value": value}})
    saver.wait()
    assert torch.equal(torch.load(tmp_path / "new/a.pt")["value"][0], torch.zeros(3))
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["a.pt", "b.pt"]
    saver.save({"c.pt": {"value": lambda: None}})
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        saver.wait()


def test_an_average_follows_and_swaps_back() -> None:
    model = nn.Linear(2, 2)
    average = Average(model, decay=0.5)
    first = {n: p.detach().clone() for n, p in model.named_parameters()}
    with torch.no_grad():
        torch._foreach_add_(list(model.parameters()), 1)
    average.update()  # decay 2 / 11 at first
    assert torch.allclose(average.values["weight"], first["weight"] + 9 / 11)
    average.swap()
    assert torch.allclose(model.weight, first["weight"] + 9 / 11)
    average.swap()
    assert torch.allclose(model.weight, first["weight"] + 1)


def test_muon_moves_turned_and_flat_matrices_alike() -> None:
    torch.manual_seed(1)
    wide = nn.Parameter(torch.randn(3, 8, 16))
    tall = nn.Parameter(wide.detach().transpose(1, 2).contiguous())
    apart = nn.Parameter(wide.detach()[1].clone())
    muon = Muon([wide, tall, apart])
    assert len(muon.groups) == 1
    before = wide.detach().clone()
    wide.grad = torch.randn(3, 8, 16)
    tall.grad, apart.grad = wide.grad.transpose(1, 2).contiguous(), wide.grad[1].clone()
    muon.step(0.01)
    assert torch.allclose(wide.transpose(1, 2), tall, atol=1e-6) and torch.allclose(wide[1], apart, atol=1e-6)
    moved = (before * (1 - 0.01 * 0.05) - wide) / (0.01 * 0.2 * 4)
    singular = torch.linalg.svdvals(moved)
    assert singular.min() > 0.5 and singular.max() < 1.4


def test_the_rate_ends_low() -> None:
    assert rate_at(0.0, 1.0) == rate_at(0.3, 1.0) == 1.0
    assert rate_at(1.0, 1.0) == rate_at(1.2, 1.0) == pytest.approx(0.02)


def test_parts_are_put_in_their_place_and_slots_count_from_the_start_of_the_batch() -> None:
    size = BatchSize(
        2, 16, 1, 3
    )  # a patch row makes 64 rows for the language model; the number behind them is a newline
    parts = []
    for seed in range(size.parts):
        torch.manual_seed(seed)
        part = Packer(size.rows, size.tokens, size.patch_rows).finish()
        slots = torch.randint(-1, 65, part.slot.shape, dtype=torch.int32)
        parts.append(replace(part, slot=slots, ids=torch.randint(99, slots.shape).short()))
    batch = SharedBatch(size)
    for number in (2, 0, 1):
        batch.put(number, parts[number])
    taken = batch.take(pinned=False)
    for name, value in vars(taken).items():
        of_parts = [getattr(part, name) for part in parts]
        if name == "slot":
            moved = [torch.where(s == 64, 3 * 64, s + 64 * number) for number, s in enumerate(of_parts)]
            of_parts = [torch.where(s < 0, s, m).int() for s, m in zip(of_parts, moved, strict=True)]
        assert value.dtype == of_parts[0].dtype
        assert torch.equal(value, torch.cat(of_parts, 1 if name == "positions" else 0))


def test_chats_in_one_block_read_as_a_list(work: Path) -> None:
    chats = Chats([work / "chats.jsonl.gz", work / "chats.jsonl.gz"])
    assert len(chats) == 100 and chats[1] == chats[51] == ["What is 1?", "A number, one more é."]
    assert chats[98:] == [chats[98], chats[99]] and len(list(chats)) == 100
    assert len(Chats([])) == 0
