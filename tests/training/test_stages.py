"""Every stage at its smallest: from material to a checkpoint that the engine opens and the evaluation asks."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from assets.training import evaluate, export, sources, tokenizer, train
from assets.training.chats import filter as chat_filter
from assets.training.documents import Encoder
from assets.training.feed import TINY_PLAN, DataMaker, Feeder
from assets.training.heldout.tasks import Tasks
from assets.training.material import HELD_STYLE, Material
from assets.training.model.twin import Stage, Twin
from assets.training.pictures.mix import picture_document
from assets.training.shape import TINY
from engine.api import Engine, EngineSettings, Message, ReplyOptions, Text
from engine.api import Image as ChatImage
from engine.chat.prompt import PrepareImage
from engine.chat.style import EncodeOptions
from engine.runtime import open_runtime

CHATS = [
    ["What is bread?", "Bread is a food made from flour and water.", "Who eats it?", "Many people eat it every day."],
    ["How can I sleep better?", "Go to bed early and keep your room dark."],
    ["Why is the sky blue?", "Blue light is scattered more than red light by the air."],
] * 3


def _drawn_icon(svg: str) -> bytes:
    """Stands for the renderer: a coloured disc per drawing."""
    picture = Image.new("RGBA", (96, 96))
    ImageDraw.Draw(picture).ellipse([10, 10, 86, 86], fill=(hash(svg) % 255, 90, 160, 255))
    held = io.BytesIO()
    picture.save(held, "PNG")
    return held.getvalue()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources, filtered chats and a tokenizer."""
    folder = tmp_path_factory.mktemp("training")
    icons = {"icons": {n: {"body": f"<g id='{n}'/>"} for n in ("banana", "dog-face", "bus")}, "width": 32, "height": 32}
    icons["aliases"] = {"accordion": {"parent": "banana"}}
    sets = {"one": icons, "two": {"icons": {"dogface": {"body": "<g/>"}}}, HELD_STYLE: icons}
    assert sources.render_icons(sets, _drawn_icon, folder / "icons.npz") == 9
    words = {
        "nouns": [
            "apple",
            "bread",
            "castle",
            "dog",
            "engine",
            "garden",
            "house",
            "island",
            "jacket",
            "kitchen",
            "lemon",
        ],
        "glosses": {"bread": "food made from flour", "dog": "an animal that barks"},
        "opposites": [["cold", "hot"]],
        "examples": [["bread", "I eat bread."]],
    }
    (folder / "words.json").write_text(json.dumps(words))
    with gzip.open(folder / "shard.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(c) + "\n" for c in CHATS)
    chat_filter.main([str(folder), str(folder / "shard.jsonl.gz")])
    sizes = ["--vocab", str(TINY.vocab), "--templates", "150", "--pictures", "60"]
    tokenizer.main([str(folder), *sizes, "--chats", str(folder / "chats.jsonl.gz")])
    return folder


@pytest.fixture(scope="module")
def trained(work: Path) -> Path:
    """Twenty steps in two starts."""
    run = work / "run"
    common = [
        str(work),
        str(run),
        "--shape",
        "tiny",
        "--processes",
        "0",
        "--every",
        "10",
        "--device",
        "cpu",
        "--rate",
        "4e-3",
    ]
    common += ["--chats", str(work / "chats.jsonl.gz"), "--held", str(work / "shard.jsonl.gz"), "--held-pictures", "2"]
    train.main([*common, "--steps", "20", "--seconds", "0"])
    assert torch.load(run / "last.pt", weights_only=True)["progress"]["step"] == 0
    train.main([*common, "--steps", "20"])
    return run


def test_training_learns_resumes_and_ends_quantized(trained: Path) -> None:
    saved = torch.load(trained / "last.pt", weights_only=True)
    first, last = saved["history"]
    assert saved["progress"]["step"] == last["step"] == 20
    assert last["loss"] < first["loss"] < 7
    assert last["held_picture"] < first["held_picture"]
    assert {"held_text", "index", "load"} <= set(last)
    assert (trained / "best.pt").exists()


def test_a_restart_goes_on_exactly_where_it_stopped(trained: Path, work: Path) -> None:
    model, saved = export.load_run(trained / "last.pt")
    assert all(torch.equal(a, saved["model"][n]) for n, a in model.state_dict().items())
    assert len(saved["optimizer"]["muon"]) > 10
    assert saved["progress"]["tokens"] == saved["tokens"] > 0


def test_the_exported_model_opens_answers_and_is_evaluated(
    trained: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "sources.json").write_text(json.dumps([sources.asdict(s) for s in sources.SOURCES]))
    out = work / "checkpoint"
    arguments = [str(trained / "last.pt"), "--tokenizer", str(work / "tokenizer.json"), "--out", str(out)]
    export.main([*arguments, "--sources", str(work / "sources.json")])
    card = (out / "MODEL_CARD.md").read_text()
    assert "CC-BY-4.0" in card and "20 steps" in card and "Not measured yet" in card
    engine = Engine.open(out, EngineSettings(device="cpu"))
    messages = [Message("system", "Be brief."), Message("user", "Hello!")]
    events = list(engine.start("a").reply(messages, ReplyOptions(max_tokens=4, temperature=0)))
    assert any(isinstance(e, Text) for e in events) or len(events) > 1
    engine.close()
    evaluate.main(
        [str(out), "--work", str(work), "--items", "1", "--json", str(work / "scores.json"), "--max-tokens", "4"]
    )
    shown = capsys.readouterr().out
    rows = json.loads((work / "scores.json").read_text())["rows"]
    assert {r["task"] for r in rows} >= {
        "colour",
        "relation",
        "number",
        "word",
        "thing",
        "value",
        "recall",
        "text_loss",
        "refusal",
    }
    assert all(r["task"] in shown for r in rows)
    export.main([*arguments, "--scores", str(work / "scores.json")])
    assert "| relation | 1 |" in (out / "MODEL_CARD.md").read_text()


def test_a_later_start_takes_the_steps_that_are_left(trained: Path, work: Path) -> None:
    run = work / "longer"
    run.mkdir()
    shutil.copy(trained / "last.pt", run / "last.pt")
    arguments = [str(work), str(run), "--shape", "tiny", "--processes", "0", "--device", "cpu", "--every", "1"]
    train.main([*arguments, "--steps", "22", "--held-pictures", "1"])
    saved = torch.load(run / "last.pt", weights_only=True)
    assert [h["step"] for h in saved["history"]] == [10, 20, 21, 22]
    assert saved["history"][-1]["loss"] < saved["history"][0]["loss"]


def test_processes_beside_make_the_batches(work: Path) -> None:
    feeder = Feeder(work, TINY, TINY_PLAN, [work / "chats.jsonl.gz"], processes=2, seed=3)
    try:
        batches = feeder.batches(2)
        made = [next(batches) for _ in range(3)]
    finally:
        feeder.close()
    assert [long for long, _ in made] == [False, True, False]
    sizes = [rows.ids.shape for _, rows in made]
    assert sizes == [(2, 384), (1, 768), (2, 384)]
    assert not torch.equal(made[0][1].ids, made[2][1].ids)


def test_exported_weights_start_another_run(trained: Path, work: Path) -> None:
    out, run = work / "again", work / "run2"
    export.main([str(trained / "last.pt"), "--tokenizer", str(work / "tokenizer.json"), "--out", str(out)])
    arguments = [str(work), str(run), "--shape", "tiny", "--processes", "0", "--device", "cpu", "--init", str(out)]
    train.main([*arguments, "--steps", "1", "--rate", "0", "--held-pictures", "1"])
    one, two = export.load_run(run / "last.pt")[0], Twin(TINY)
    export.load_values(out, two)
    assert torch.equal(one.embedding, two.embedding)


def test_no_training_picture_shows_the_held_out_style(work: Path) -> None:
    material = Material.load(work)
    assert material.icons is not None and material.held_icons is not None
    assert material.icons.styles == ["one", "two"] and material.held_icons.styles == [HELD_STYLE]
    assert set(material.words).isdisjoint(material.held_words) and material.held_words


def test_the_evaluation_alone_needs_a_small_folder(work: Path, tmp_path: Path) -> None:
    sources.pack_held(work, tmp_path / "held")
    one, two = Tasks(Material.load(work), []), Tasks(Material.load(tmp_path / "held"), [])
    assert one.words == two.words and one.things == two.things
    for task in ("thing", "word", "knowledge"):
        a, b = one.make(task, 1), two.make(task, 1)
        assert a.wanted == b.wanted and a.asks[0].text == b.asks[0].text
        assert [p.tobytes() for p in a.asks[0].pictures] == [p.tobytes() for p in b.asks[0].pictures]


def test_batches_are_filled_and_balanced(work: Path) -> None:
    maker = DataMaker(work, TINY, TINY_PLAN, CHATS, 1)
    for size in (TINY_PLAN.short, TINY_PLAN.long):
        parts = [maker.part(size) for _ in range(6)]
        assert all(p.ids.shape == (size.rows, size.tokens) for p in parts)
        assert np.mean([float((p.document >= 0).float().mean()) for p in parts]) > 0.7
        assert np.mean([float((p.weight == 10).float().mean()) for p in parts]) > 0.1
        assert all(int(p.slot.max()) <= size.patch_rows * 64 for p in parts)
        with torch.no_grad():
            losses = Twin(TINY).losses(parts[0].to("cpu"), Stage(sparse=True, index_rows=1), torch.float32)
        assert losses.cross_entropy.isfinite() and losses.index.isfinite()


def test_what_a_row_holds_can_be_read_back(work: Path) -> None:
    """The packed tokens are the template's own rendering."""
    maker = DataMaker(work, TINY, TINY_PLAN, CHATS, 2)
    out = work / "reading"
    export.write_checkpoint(Twin(TINY), work / "tokenizer.json", out)
    runtime = open_runtime(out, EngineSettings(device="cpu", cache_tokens=4096))
    rng = random.Random(4)
    for _ in range(12):
        document = picture_document(rng, maker.material)
        made = Encoder(maker.encoder.tokenizer, TINY).encode(document)
        messages = []
        for turn in document.turns:
            files = []
            for picture in turn.pictures:
                files.append(work / f"p{rng.random()}.png")
                picture.save(files[-1])
            messages.append(Message("user", turn.question, tuple(ChatImage(f) for f in files)))
            messages.append(Message("assistant", turn.answer))
        prompt = runtime.prompts.build(messages[:-1], EncodeOptions(False, None), {}, PrepareImage(runtime.prompts))
        count = len(prompt.ids)
        assert made.ids[:count] == prompt.ids
        assert torch.equal(torch.tensor(made.positions).T[:, :count], prompt.rope_positions)
