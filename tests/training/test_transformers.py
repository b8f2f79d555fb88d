"""The reference implementation reads an exported model's config and computes the same logits from its stored values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer

from assets.training.documents import Document, Encoder, Turn, pack_all
from assets.training.export import load_values, logical_values, write_checkpoint
from assets.training.model.twin import Stage, Twin
from assets.training.shape import TINY
from assets.training.tokenizer import train_tokenizer
from engine.api import check_model
from engine.families.hy_v4 import FAMILY
from engine.model.loader import disk_name
from engine.runtime import image_reader, open_runtime
from engine.settings import EngineSettings
from tests.support.oracle.families.hy_v4 import original_name


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Twin, Path]:
    folder = tmp_path_factory.mktemp("reference")
    tokenizer = train_tokenizer(["what is left of the blue square"] * 9, TINY.vocab)
    tokenizer.save(str(folder / "t.json"))
    torch.manual_seed(8)
    model = Twin(TINY)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.05)
    write_checkpoint(model, folder / "t.json", folder / "out")
    load_values(folder / "out", model)
    return model, folder / "out"


def test_the_check_report_accepts_it(exported: tuple[Twin, Path]) -> None:
    report = check_model(exported[1], EngineSettings(device="cpu"))
    assert report.problems == [] and report.family == "hy_v4"


def test_transformers_computes_the_same(exported: tuple[Twin, Path]) -> None:
    from transformers import HYV4VLConfig, HYV4VLForConditionalGeneration

    model, path = exported
    config = HYV4VLConfig(
        **{k: v for k, v in json.loads((path / "config.json").read_text()).items() if k != "quantization_config"}
    )
    config._attn_implementation = "eager"
    reference = HYV4VLForConditionalGeneration(config).float().eval()
    stored = {disk_name(FAMILY, n): v for n, v in logical_values(model).items()}
    for number in range(1, TINY.layers):
        for part in ("gate_up", "down"):
            fused = model.state_dict()[f"layers.{number}.mlp.experts.{part}"]
            stored[f"model.layers.{number}.mlp.experts.{part}_proj"] = fused
    reference.load_state_dict({n: stored[original_name(n)] for n in reference.state_dict()})
    runtime = open_runtime(path, EngineSettings(device="cpu", cache_tokens=512))
    reader = image_reader(runtime.described)
    assert reader is not None
    noise = np.random.default_rng(6)
    pictures = [
        Image.fromarray(noise.integers(0, 256, size, np.uint8), "RGB") for size in ((200, 96, 3), (256, 256, 3))
    ]

    turns = tuple(Turn("what is left?", "the square", (p,)) for p in pictures)
    made = Encoder(Tokenizer.from_file(str(path / "tokenizer.json")), TINY).encode(Document(turns))
    prepared = [reader.prepare(p) for p in pictures]
    ids = torch.tensor([made.ids])
    with torch.no_grad():
        theirs = reference(
            input_ids=ids,
            pixel_values=torch.cat([p.pixels for p in prepared]),
            image_grid_thw=torch.tensor([[1, *p.grid] for p in prepared]),
            mm_token_type_ids=(ids == 5).int(),
            use_cache=False,
        ).logits[0]
        rows = pack_all([made], 256).to("cpu")
        hidden, _, _ = model.hidden(rows, Stage(sparse=True), torch.float32)
        ours = torch.nn.functional.linear(hidden, model.head)[0, : len(made.ids)]
    assert theirs.std() > 0.05
    assert (ours - theirs).abs().max() < 2e-5
