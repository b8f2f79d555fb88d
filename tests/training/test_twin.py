"""The trainable twin computes what the engine computes, and the exporter writes what the engine reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from tokenizers import Tokenizer

from assets.training.documents import Document, Encoder, Packer, Turn, pack_all
from assets.training.export import load_values, logical_values, stored_tensors, stretched, write_checkpoint
from assets.training.feed import BatchSize, SharedBatch
from assets.training.model.quantize import pack_mxfp4, pack_mxfp8, round_mxfp4
from assets.training.model.twin import Stage, Twin
from assets.training.shape import SHAPES, TINY
from assets.training.tokenizer import train_tokenizer
from engine.model.loader import declare
from engine.runtime import open_runtime
from engine.scoring import ScorePrompt, score
from engine.settings import EngineSettings
from kernels.formats import dequantize_fp8, dequantize_mxfp4

SIZES = [(64, 64), (256, 256), (400, 130), (90, 360), (200, 150), (31, 70), (256, 200)]


def random_twin() -> Twin:
    """Weights with spread, so that gates, sinks and scales all matter."""
    torch.manual_seed(5)
    model = Twin(TINY)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.05)
        for layer in model.layers[1:]:
            layer.mlp.router.bias.normal_(std=0.1)  # type: ignore[union-attr]
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Twin, Path]:
    folder = tmp_path_factory.mktemp("twin")
    train_tokenizer(["the red circle is left of the blue square"] * 9, TINY.vocab).save(str(folder / "t.json"))
    model = random_twin()
    write_checkpoint(model, folder / "t.json", folder / "out")
    load_values(folder / "out", model)
    return model, folder / "out"


def test_a_smaller_grid_of_places_is_stretched() -> None:
    torch.manual_seed(2)
    small = torch.randn(1 + 16, 5)
    assert torch.equal(stretched(small, 4), small)
    large = stretched(small, 8)
    assert large.shape == (65, 5) and torch.equal(large[0], small[0])
    back = F.interpolate(large[1:].T.reshape(1, 5, 8, 8), (4, 4), mode="area")[0].flatten(1).T
    assert torch.corrcoef(torch.stack([back.flatten(), small[1:].flatten()]))[0, 1] > 0.95
    flat = torch.cat([small[:1], small[1:2].expand(16, 5)])
    assert torch.allclose(stretched(flat, 7)[1:], small[1].expand(49, 5), atol=1e-6)


def test_every_parameter_has_the_engines_name_and_shape() -> None:
    for shape in SHAPES.values():
        values = logical_values(Twin(shape))
        assert {n: tuple(v.shape) for n, v in values.items()} == {n: p.shape for n, p in declare(shape.spec()).items()}


def test_the_shipped_shape_fits_into_its_budget() -> None:
    shape = SHAPES["full"]
    tensors = stored_tensors(logical_values(Twin(shape)), shape)
    assert sum(t.nbytes for t in tensors.values()) < 39_400_000  # the other files have about 0.4 MB


@pytest.mark.parametrize("sparse", [False, True])
def test_logits_equal_the_engines_with_pictures_of_any_shape(
    exported: tuple[Twin, Path], tmp_path: Path, sparse: bool
) -> None:
    model, path = exported
    if not sparse:  # the engine is always sparse: let it select everything
        path = _with_topk(path, tmp_path / "dense", 1024)
    rng = torch.Generator().manual_seed(1)
    pictures = [Image.fromarray(_noise(rng, w, h), "RGB") for w, h in SIZES]
    runtime = open_runtime(path, EngineSettings(device="cpu", cache_tokens=2048))
    turns = tuple(Turn(f"red {i}?", "blue square", (p,)) for i, p in enumerate(pictures))
    turns += (Turn("two", "circles", (pictures[0], pictures[3])),)
    made = Encoder(Tokenizer.from_file(str(path / "tokenizer.json")), TINY).encode(Document(turns))
    rows = pack_all([made], 512).to("cpu")
    with torch.no_grad():
        hidden, _, _ = model.hidden(rows, Stage(sparse=sparse), torch.float32)
        ours = torch.nn.functional.linear(hidden, model.head)[0, : len(made.ids)]
    files = []
    for number in [*range(len(pictures)), 0, 3]:
        files.append(tmp_path / f"{number}.png")
        pictures[number].save(files[-1])
    theirs = score(runtime, ScorePrompt(made.ids, files), 64)
    assert torch.equal(theirs["position_ids"], torch.tensor(made.positions).T)
    assert (ours - theirs["logits"]).abs().max() <= 1e-5
    assert ours.std() > 0.05


def _noise(rng: torch.Generator, width: int, height: int) -> object:
    return torch.randint(0, 256, (height, width, 3), generator=rng, dtype=torch.uint8).numpy()


def _with_topk(path: Path, out: Path, topk: int) -> Path:
    out.mkdir()
    for file in path.iterdir():
        (out / file.name).symlink_to(file)
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["index_topk"] = topk
    (out / "config.json").unlink()
    (out / "config.json").write_text(json.dumps(config))
    return out


def test_joined_batches_compute_what_their_parts_compute(exported: tuple[Twin, Path]) -> None:
    model, path = exported
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    rng = torch.Generator().manual_seed(2)
    encoder = Encoder(tokenizer, TINY)
    size = BatchSize(rows=3, tokens=192, patch_rows=3, parts=2)
    parts, batch = [], SharedBatch(size)
    for number, sizes in enumerate((SIZES[:2], SIZES[2:5])):
        packer = Packer(size.rows, size.tokens, size.patch_rows)
        for row, (width, height) in enumerate(sizes):
            picture = Image.fromarray(_noise(rng, width, height), "RGB")
            assert packer.add(row, encoder.encode(Document((Turn("a", "b", (picture,)),))))
        parts.append(packer.finish())
        batch.put(number, parts[-1])
    with torch.no_grad():
        apart = torch.cat([model.hidden(p.to("cpu"), Stage(True), torch.float32)[0] for p in parts])
        together = model.hidden(batch.take(pinned=False).to("cpu"), Stage(True), torch.float32)[0]
    assert (apart - together).abs().max() < 1e-5


def test_packed_weights_are_the_rounded_ones() -> None:
    torch.manual_seed(0)
    w = torch.cat([torch.randn(64, 96), torch.zeros(1, 96), torch.randn(3, 96) * 1e-30, torch.randn(4, 96) * 300])
    packed = pack_mxfp4(w)
    assert torch.equal(dequantize_mxfp4(packed.codes, packed.scale), round_mxfp4(w))
    assert (round_mxfp4(w)[:64] - w[:64]).norm() / w[:64].norm() < 0.12
    eight = pack_mxfp8(w)
    back = dequantize_fp8(eight.codes, eight.scale, (1, 32))
    assert (back[:64] - w[:64]).norm() / w[:64].norm() < 0.03


def test_losses_reach_every_parameter_and_the_index_only_from_its_own(exported: tuple[Twin, Path]) -> None:
    model, path = exported
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    picture = Image.new("RGB", (128, 96), (200, 30, 40))
    long = Document(tuple(Turn(f"the red circle {i}", "blue square " * 3, (picture,)) for i in range(6)))
    rows = pack_all([Encoder(tokenizer, TINY).encode(long)], 384).to("cpu")
    losses = model.losses(rows, Stage(sparse=True, quantized=True, index_rows=8), torch.float32)
    index = {n for n, _ in model.named_parameters() if ".indexer." in n}
    model.zero_grad()
    losses.index.backward(retain_graph=True)
    assert {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0} == index
    model.zero_grad()
    losses.cross_entropy.backward()
    reached = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert reached == {n for n, _ in model.named_parameters()} - index


def test_the_pieces_can_be_captured_whole(exported: tuple[Twin, Path]) -> None:
    """What a GPU compiles has no break in it, and layers of one kind share a graph."""
    model, path = exported
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    document = Document((Turn("the red circle", "blue square", (Image.new("RGB", (64, 64)),)),))
    rows = pack_all([Encoder(tokenizer, TINY).encode(document)], 64).to("cpu")
    compiled = Twin(TINY)
    compiled.load_state_dict(model.state_dict())
    compiled.compile(backend="eager")
    stage = Stage(sparse=True, quantized=True, index_rows=1)
    one, two = compiled.losses(rows, stage, torch.float32), model.losses(rows, stage, torch.float32)
    (one.cross_entropy + one.index).backward()
    assert torch.allclose(one.cross_entropy, two.cross_entropy, rtol=1e-4)
    assert torch.allclose(one.index, two.index, rtol=1e-3, atol=1e-6)
