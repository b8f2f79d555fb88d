"""The page's sample pictures are those of the code, small, and the built-in model answers them rightly."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image as Picture

from assets.training import samples
from engine.api import Engine, EngineSettings, Image, Message, ReplyOptions, Text

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = {"chart.png": "green bar is the shortest", "circles.png": "three", "heart.png": "heart"}


def test_the_files_are_what_the_code_draws(tmp_path: Path) -> None:
    samples.main([str(tmp_path)])
    listed = json.loads((ROOT / "assets/samples/samples.json").read_text())
    assert listed == json.loads((tmp_path / "samples.json").read_text()) and len(listed) == 3
    for entry in listed:
        committed, made = (folder / entry["file"] for folder in (ROOT / "assets/samples", tmp_path))
        assert committed.stat().st_size < 60_000
        one, two = (Picture.open(p).convert("RGB").resize((24, 24)) for p in (committed, made))
        worst = max(abs(a - b) for a, b in zip(one.tobytes(), two.tobytes(), strict=True))
        assert worst <= 8  # another Pillow may shrink or pick colours a little differently


def test_the_built_in_model_answers_them() -> None:
    engine = Engine.open(ROOT / "assets/demo", EngineSettings(device="cpu", threads=1))
    try:
        for entry in json.loads((ROOT / "assets/samples/samples.json").read_text()):
            messages = [Message("user", entry["question"], (Image(ROOT / "assets/samples" / entry["file"]),))]
            events = engine.start(entry["file"]).reply(messages, ReplyOptions(temperature=0, max_tokens=40))
            answer = "".join(e.text for e in events if isinstance(e, Text))
            assert ANSWERS[entry["file"]] in answer
    finally:
        engine.close()
