"""Number formats, lazy opening, and every way in which checkpoint files can be wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from engine.api import BadCheckpoint, Engine, EngineError, EngineSettings, UnsupportedModel
from engine.checkpoint.directory import Checkpoint
from engine.checkpoint.shard import Shard
from engine.checkpoint.stored import StoredTensor, find_stored
from engine.runtime import describe, open_runtime
from tests.engine.helpers import (
    copy_of,
    edit_json,
    is_one_sentence,
    own,
    patch,
    read_header,
    rewrite_header,
    shard_with,
    write_file,
)
from tests.support import formats
from tests.support.oracle import OracleCase

GetCase = Callable[..., OracleCase]
CPU = EngineSettings(device="cpu", cache_tokens=1024)


def stored(folder: Path, tensors: dict[str, Tensor], name: str = "w.weight", block: tuple[int, int] | None = None):
    """What the engine makes of these tensors in a file."""
    save_file(tensors, folder / "x.safetensors")
    found = find_stored(Shard(folder / "x.safetensors").entries, name, block)
    assert found is not None
    return found[0]


def e8m0(scale: Tensor) -> Tensor:
    return scale.view(torch.float8_e8m0fnu)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize("scale_type", ["e8m0", "uint8"])
@pytest.mark.parametrize("code_type", [torch.int8, torch.uint8])
def test_mxfp4_every_code_with_every_scale(tmp_path: Path, scale_type: str, code_type: torch.dtype) -> None:
    pairs = torch.arange(0, 16, 2, dtype=torch.uint8)
    row = (pairs | (pairs + 1) << 4).repeat(2)  # codes 0..15 twice: one group of 32
    codes = row.repeat(255, 1).view(code_type)
    scale = torch.arange(255, dtype=torch.uint8).unsqueeze(1)
    tensors = {"w.weight": codes, "w.scale": e8m0(scale) if scale_type == "e8m0" else scale}
    decoded = stored(tmp_path, tensors).decode(torch.float32)
    expected = formats.mxfp4_products()[:255].repeat(1, 2)
    representable = expected.abs() <= torch.finfo(torch.float32).max
    assert int(representable.sum()) > 255 * 31
    assert torch.equal(decoded[representable].double(), expected[representable])
    assert bool(decoded[~representable].isinf().all())


def test_mxfp4_low_nibble_is_the_even_column(tmp_path: Path) -> None:
    packed, values = formats.nibble_order()
    scale = torch.full((16, 1), 127, dtype=torch.uint8)
    decoded = stored(tmp_path, {"w.weight": packed.view(16, 16), "w.scale": scale}).decode(torch.float32)
    assert torch.equal(decoded.double(), values.view(16, 32))


def test_fp8_every_code(tmp_path: Path) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    finite = codes[(codes & 0x7F) != 0x7F]
    scale = torch.ones(1, 1)
    decoded = stored(tmp_path, {"w.weight": finite.view(1, -1).view(torch.float8_e4m3fn), "w.weight_scale_inv": scale})
    assert torch.equal(decoded.decode(torch.float32)[0].double(), formats.e4m3_table()[finite.long()])


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_fp8_nan_codes_are_refused(tmp_path: Path, code: int) -> None:
    codes = torch.zeros(2, 32, dtype=torch.uint8)
    codes[1, 5] = code
    with pytest.raises(BadCheckpoint, match=r"w\.weight.*x\.safetensors.*not numbers") as caught:
        stored(tmp_path, {"w.weight": codes.view(torch.float8_e4m3fn), "w.scale": torch.ones(1, 1)}).decode(
            torch.float32
        )
    assert is_one_sentence(caught.value)


SHAPES = [
    ((160, 130), (128, 128)), ((576, 96), (128, 128)), ((128, 128), (128, 128)), ((33, 64), (32, 32)),
    ((5, 96), (1, 32)), ((7, 33), (3, 5)), ((70, 70), (64, 16)), ((1, 1), (128, 128)), ((129, 129), (128, 128)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "block"), SHAPES)
@pytest.mark.parametrize("scale_type", [torch.float32, torch.bfloat16, torch.uint8, torch.float8_e8m0fnu])
def test_fp8_blocks_of_any_size_with_cut_edges(
    tmp_path: Path, shape: tuple[int, int], block: tuple[int, int], scale_type: torch.dtype
) -> None:
    bytes_scale = scale_type in (torch.uint8, torch.float8_e8m0fnu)
    vector = formats.fp8_blocks(*shape, block, e8m0=bytes_scale or scale_type == torch.bfloat16)
    scale, value = vector.scale, vector.value
    if scale_type == torch.bfloat16:  # powers of two, exact in bfloat16
        scale = formats.e8m0_table()[scale.long()].to(torch.bfloat16)
    scale = e8m0(scale) if scale_type == torch.float8_e8m0fnu else scale
    tensors = {"w.weight": vector.code.view(torch.float8_e4m3fn), "w.weight_scale_inv": scale}
    decoded = stored(tmp_path, tensors, block=block).decode(torch.float32)
    assert decoded.shape == shape
    torch.testing.assert_close(decoded.double(), value, rtol=0 if scale_type != torch.float32 else 1e-7, atol=0)


def test_fp8_block_is_found_without_the_configs_word(tmp_path: Path) -> None:
    vector = formats.fp8_blocks(160, 130, (128, 128), e8m0=True)
    found = stored(tmp_path, {"w.weight": vector.code.view(torch.float8_e4m3fn), "w.scale": e8m0(vector.scale)})
    assert found.block == (128, 128)
    assert torch.equal(found.decode(torch.float32).double(), vector.value)


def test_a_wrong_block_size_in_the_config_gives_way_to_the_scales(tmp_path: Path) -> None:
    vector = formats.fp8_blocks(64, 96, (1, 32), e8m0=True)
    tensors = {"w.weight": vector.code.view(torch.float8_e4m3fn), "w.weight_scale": vector.scale}
    found = stored(tmp_path, tensors, block=(128, 128))
    assert torch.equal(found.decode(torch.float32).double(), vector.value)


def test_gpt_oss_blocks(tmp_path: Path) -> None:
    vector = formats.gpt_oss_blocks(3, 4, 2)
    found = stored(tmp_path, {"e.gate_blocks": vector.code, "e.gate_scales": vector.scale}, "e.gate")
    assert found.shape == (3, 4, 64)
    for e in range(3):
        assert torch.equal(found.select(e, None).decode(torch.float32).double(), vector.value[e])
        assert torch.equal(found.select(e, (1, 3)).decode(torch.float32).double(), vector.value[e, 1:3])
    packed = found.select(1, (2, 4)).packed()
    assert packed.codes.shape == (2, 32) and packed.scale.shape == (2, 2)


@pytest.mark.parametrize("kind", ["bf16", "mxfp8", "mxfp4", "fp8"])
def test_fused_experts_are_cut_at_the_right_rows(tmp_path: Path, kind: str) -> None:
    experts, rows, columns = 3, 8, 64
    if kind == "bf16":
        whole = torch.randn(experts, rows, columns).to(torch.bfloat16)
        tensors, value = {"x.gate_up": whole}, whole.double()
    elif kind == "mxfp4":
        flat = formats.mxfp4_matrix(experts * rows, columns)
        tensors = {
            "x.gate_up": flat.code.view(experts, rows, -1),
            "x.gate_up_scale": flat.scale.view(experts, rows, -1),
        }
        value = flat.value.view(experts, rows, columns)
    else:
        block = (1, 32) if kind == "mxfp8" else (4, 32)
        flat = formats.fp8_blocks(experts * rows, columns, block, e8m0=True)
        code = flat.code.view(experts, rows, columns).view(torch.float8_e4m3fn)
        tensors = {
            "x.gate_up.weight": code,
            "x.gate_up.weight_scale_inv": flat.scale.view(experts, rows // block[0], -1),
        }
        value = flat.value.view(experts, rows, columns)
    found = stored(tmp_path, tensors, "x.gate_up")
    assert found.shape == (experts, rows, columns)
    total = 0
    for e in range(experts):
        for part in ((0, 4), (4, 8)):
            cut = found.select(e, part)
            assert cut.shape == (4, columns)
            assert torch.equal(cut.decode(torch.float32).double(), value[e, part[0] : part[1]])
            total += cut.nbytes
    assert total == found.nbytes


def test_fused_experts_cannot_be_cut_inside_a_block(tmp_path: Path) -> None:
    flat = formats.fp8_blocks(8, 64, (8, 32), e8m0=True)
    tensors = {
        "x.gate_up": flat.code.view(1, 8, 64).view(torch.float8_e4m3fn), "x.gate_up_scale": flat.scale.view(1, 1, 2)
    }  # fmt: skip
    with pytest.raises(BadCheckpoint, match=r"x\.gate_up .*row 4") as caught:
        stored(tmp_path, tensors, "x.gate_up").select(0, (4, 8)).decode(torch.float32)
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_data_at_odd_offsets(tmp_path: Path, dtype: torch.dtype, shift: int) -> None:
    value = torch.randn(5, 3, dtype=torch.float64).to(dtype)
    data = b"\0" * shift + value.view(torch.uint8).numpy().tobytes()
    kind = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}[dtype]
    header = {
        "pad": {"dtype": "U8", "shape": [shift], "data_offsets": [0, shift]},
        "w": {"dtype": kind, "shape": [5, 3], "data_offsets": [shift, len(data)]},
    }
    entry = Shard(write_file(tmp_path / "x.safetensors", header, data)).entries["w"]
    assert torch.equal(entry.view(), value)


@pytest.mark.parametrize(
    "scale",
    [torch.tensor([[255]], dtype=torch.uint8), e8m0(torch.tensor([[255]], dtype=torch.uint8)),
     torch.tensor([[float("nan")]]), torch.tensor([[float("inf")]])],
    ids=["uint8", "e8m0", "nan", "inf"],
)  # fmt: skip
def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, scale: Tensor) -> None:
    codes = torch.zeros(1, 32, dtype=torch.uint8).view(torch.float8_e4m3fn)
    with pytest.raises(BadCheckpoint, match=r"w\.scale in x\.safetensors") as caught:
        stored(tmp_path, {"w.weight": codes, "w.scale": scale}).decode(torch.float32)
    assert is_one_sentence(caught.value)


def test_packed_mxfp4_with_scale_255_is_refused(tmp_path: Path) -> None:
    scale = torch.full((2, 1), 255, dtype=torch.uint8)
    with pytest.raises(BadCheckpoint, match=r"w\.scale in x\.safetensors"):
        stored(tmp_path, {"w.weight": torch.zeros(2, 16, dtype=torch.int8), "w.scale": scale}).packed()


BAD_PAIRS = {
    "quantized without scale": {"w.weight": torch.zeros(2, 32, dtype=torch.int8)},
    "fp8 without scale": {"w.weight": torch.zeros(2, 32, dtype=torch.uint8).view(torch.float8_e4m3fn)},
    "mxfp4 with float scales": {"w.weight": torch.zeros(2, 16, dtype=torch.int8), "w.scale": torch.ones(2, 1)},
    "mxfp4 with too few scales": {
        "w.weight": torch.zeros(2, 32, dtype=torch.int8), "w.scale": torch.zeros(2, 1, dtype=torch.uint8)
    },
    "fp8 grid of another matrix": {
        "w.weight": torch.zeros(64, 64, dtype=torch.uint8).view(torch.float8_e4m3fn), "w.scale": torch.ones(63, 5)
    },
    "fp8 with scales of one dimension": {
        "w.weight": torch.zeros(64, 64, dtype=torch.uint8).view(torch.float8_e4m3fn), "w.scale": torch.ones(4)
    },
    "fp8 vector": {"w.weight": torch.zeros(64, dtype=torch.uint8).view(torch.float8_e4m3fn), "w.scale": torch.ones(1)},
    "scalar mxfp4": {"w.weight": torch.zeros((), dtype=torch.int8), "w.scale": torch.zeros((), dtype=torch.uint8)},
    "booleans": {"w.weight": torch.zeros(2, 2, dtype=torch.bool), "w.scale": torch.ones(1, 1)},
    "fp8 with integer scales": {
        "w.weight": torch.zeros(2, 32, dtype=torch.uint8).view(torch.float8_e4m3fn),
        "w.scale": torch.ones(1, 1, dtype=torch.int64),
    },
    "gpt-oss blocks without scales": {"w_blocks": torch.zeros(1, 2, 1, 16, dtype=torch.uint8)},
    "gpt-oss blocks of a wrong width": {
        "w_blocks": torch.zeros(1, 2, 1, 8, dtype=torch.uint8), "w_scales": torch.zeros(1, 2, 1, dtype=torch.uint8)
    },
    "scalar gpt-oss blocks": {
        "w_blocks": torch.zeros((), dtype=torch.uint8), "w_scales": torch.zeros((), dtype=torch.uint8)
    },
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD_PAIRS))
def test_codes_and_scales_that_do_not_belong_together(tmp_path: Path, case: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"tensor w.* in x\.safetensors") as caught:
        stored(tmp_path, BAD_PAIRS[case])
    assert is_one_sentence(caught.value)


# ---------------------------------------------------------------- lazy


def test_opening_touches_headers_only(tmp_path: Path) -> None:
    """A sparse file of 1 GiB: opening and matching must not make its pages resident."""
    size = 1 << 30
    header = {"big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    path = write_file(tmp_path / "model.safetensors", header)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)
    (tmp_path / "config.json").write_text("{}")
    script = (
        "import resource, sys; from pathlib import Path; from engine.checkpoint.directory import Checkpoint\n"
        "def peak():\n    return int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])\n"
        "before = peak(); c = Checkpoint(Path(sys.argv[1])); c.entries['big'].view(); c.fingerprint(); print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert int(done.stdout) < 16 << 10, f"peak memory grew by {done.stdout} KiB"


def test_release_gives_mapped_pages_back_and_values_stay(tmp_path: Path) -> None:
    value = torch.randn(1000, 1000)
    save_file({"w": value}, tmp_path / "x.safetensors")
    entry = Shard(tmp_path / "x.safetensors").entries["w"]
    assert torch.equal(entry.view(), value)
    entry.release()
    assert torch.equal(entry.view(), value)


# ---------------------------------------------------------------- bad files


def refused(path: Path, kind: type[EngineError], *words: str) -> None:
    """Opening fails with one sentence of the right kind that has all the words, and no weight has been read."""
    loaded: list[int] = []
    with pytest.raises(kind) as caught:
        open_runtime(path, CPU, lambda progress: loaded.append(progress.done_bytes))
    assert is_one_sentence(caught.value), str(caught.value)
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"
    assert not any(loaded), "weights were loaded before the refusal"


@pytest.fixture
def folder(oracle_case: GetCase, tmp_path: Path) -> Path:
    """A private copy of a whole checkpoint."""
    return copy_of(oracle_case("hy_v4_vl").path, tmp_path / "model")


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
EXPERT = "model.layers.3.mlp.experts.2.up_proj"


def test_the_copy_itself_opens(folder: Path) -> None:
    assert describe(folder, CPU).num_parameters > 0


def test_no_directory(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", BadCheckpoint, "nowhere")


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", BadCheckpoint, "file")


def test_neither_index_nor_weights(folder: Path) -> None:
    for file in (FIRST, SECOND, INDEX):
        (folder / file).unlink()
    refused(folder, BadCheckpoint, INDEX)


def test_missing_shard(folder: Path) -> None:
    (folder / SECOND).unlink()
    refused(folder, BadCheckpoint, SECOND, "missing")


def test_a_directory_in_place_of_a_shard(folder: Path) -> None:
    (folder / SECOND).unlink()
    (folder / SECOND).mkdir()
    refused(folder, BadCheckpoint, SECOND)


@pytest.mark.parametrize("keep", [0, 4, 8, 1000, -1])
def test_truncated_shard(folder: Path, keep: int) -> None:
    data = (folder / SECOND).read_bytes()
    (folder / SECOND).unlink()
    (folder / SECOND).write_bytes(data[:keep])
    refused(folder, BadCheckpoint, SECOND, "download")


def test_a_shard_that_is_the_other_ones_copy(folder: Path) -> None:
    (folder / SECOND).unlink()
    (folder / SECOND).write_bytes((folder / FIRST).read_bytes())
    refused(folder, BadCheckpoint, FIRST, SECOND, "two files")


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "", "a\\b", "x" * 5000, "a\0b"]
)
def test_index_names_a_file_outside(folder: Path, name: str) -> None:
    edit_json(folder / INDEX, lambda c: c["weight_map"].update({"lm_head.weight": name}))
    refused(folder, BadCheckpoint)


@pytest.mark.parametrize(
    "content", ['{"weight_map": 5}', '{"weight_map": {"a": 5}}', "{}", "[]", '{"weight_map": null}']
)
def test_index_without_a_usable_map(folder: Path, content: str) -> None:
    (folder / INDEX).write_text(content)
    refused(folder, BadCheckpoint, INDEX)


def test_index_names_a_tensor_that_is_not_there(folder: Path) -> None:
    edit_json(folder / INDEX, lambda c: c["weight_map"].update({"extra.weight": FIRST}))
    refused(folder, BadCheckpoint, "extra.weight", FIRST)


def test_index_names_the_wrong_shard(folder: Path) -> None:
    def swap(content: dict) -> None:
        content["weight_map"]["model.norm.weight"] = (
            FIRST if content["weight_map"]["model.norm.weight"] == SECOND else SECOND
        )

    edit_json(folder / INDEX, swap)
    refused(folder, BadCheckpoint, "model.norm.weight")


JSON_FILES = [
    "config.json",
    INDEX,
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
]
BROKEN = {
    "cut": b'{"a": ',
    "empty": b"",
    "list": b"[1]",
    "number": b"7",
    "bytes": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", list(BROKEN))
@pytest.mark.parametrize("file", JSON_FILES)
def test_malformed_json(folder: Path, file: str, content: str) -> None:
    (folder / file).write_bytes(BROKEN[content])
    refused(folder, BadCheckpoint, file)


def test_a_template_that_is_not_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe\x00{{")
    refused(folder, BadCheckpoint, "chat_template.jinja")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_needed_json_file_is_missing(folder: Path, file: str) -> None:
    (folder / file).unlink()
    refused(folder, BadCheckpoint, file)


WRONG_VALUES = {
    "generation_config.json": [
        {"eos_token_id": "x"}, {"eos_token_id": [1, None]}, {"eos_token_id": [[1]]}, {"temperature": "hot"},
        {"top_k": [1]}, {"max_new_tokens": "many"}, {"top_p": {}}, {"temperature": -1},
    ],
    "preprocessor_config.json": [
        {"size": 5}, {"size": {"shortest_edge": "x"}}, {"image_mean": "x"}, {"image_std": [0.0, 0.0, 0.0]},
        {"image_mean": [1.0]}, {"rescale_factor": "x"}, {"pad_to_square": 7}, {"patch_size": 3},
        {"pad_to_square": [1, 2]}, {"pad_to_square": ["a", "b", "c"]},
        {"size": {"shortest_edge": 100, "longest_edge": -5}},
    ],
    "tokenizer_config.json": [
        {"chat_template": 5}, {"chat_template": [1]}, {"chat_template": [{"name": "default", "template": 3}]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "change"), [(file, change) for file, changes in WRONG_VALUES.items() for change in changes], ids=str
)
def test_values_of_the_wrong_type_in_side_files(folder: Path, file: str, change: dict) -> None:
    if "chat_template" in change:
        (folder / "chat_template.jinja").unlink()
    edit_json(folder / file, lambda c: c.update(change))
    refused(folder, BadCheckpoint, file, next(iter(change)))


@pytest.mark.parametrize("kind", ["gpt2", None, 5, ["hy_v4"], {"a": 1}])
def test_unknown_model_type(folder: Path, kind: object) -> None:
    edit_json(folder / "config.json", lambda c: c.update(model_type=kind))
    refused(folder, UnsupportedModel, repr(kind), "hy_v4")


@pytest.mark.parametrize("where", ["outer", "text_config", "vision_config"])
def test_unknown_config_key(folder: Path, where: str) -> None:
    edit_json(folder / "config.json", lambda c: (c if where == "outer" else c[where]).update(new_trick=True))
    refused(folder, UnsupportedModel, "new_trick")


CONFIG_VALUES = [
    ("hidden_size", "x"), ("hidden_size", 0), ("hidden_size", -1), ("hidden_size", 1.5), ("hidden_size", True),
    ("hidden_size", None), ("rms_norm_eps", "x"), ("rope_parameters", 5), ("rope_parameters", {"mrope_section": 5}),
    ("rope_parameters", {"mrope_section": ["a", "b", "c"]}), ("rope_parameters", {"mrope_section": [6, 5]}),
    ("rope_parameters", {"rope_type": "yarn"}), ("mlp_layer_types", ["dense"]), ("mlp_layer_types", "dense"),
    ("indexer_types", ["shared"] * 7), ("eos_token_id", "x"), ("hidden_act", "gelu"), ("num_hidden_layers", 10**9),
    ("n_routed_experts", 10**9), ("qk_rope_head_dim", 31), ("num_experts_per_tok", 9), ("index_n_heads", [1]),
    ("n_group", 3), ("mlp_layer_types", [[], 1, 2, 3, 4, 5, 6]),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), CONFIG_VALUES, ids=str)
def test_config_values_that_make_no_sense(folder: Path, key: str, value: object) -> None:
    edit_json(folder / "config.json", lambda c: c["text_config"].update({key: value}))
    refused(folder, UnsupportedModel, *([] if value is None else [key]))


@pytest.mark.parametrize(
    ("key", "value"),
    [("text_config", "x"), ("text_config", None), ("vision_config", 5), ("vision_config", None), ("vision_config", [1]),
     ("image_token_id", "x"), ("image_token_id", 10**6), ("quantization_config", 5),
     ("quantization_config", {"quant_method": "gptq"}), ("tie_word_embeddings", True)],
    ids=str,
)  # fmt: skip
def test_outer_config_values_that_make_no_sense(folder: Path, key: str, value: object) -> None:
    edit_json(folder / "config.json", lambda c: c.update({key: value}))
    refused(folder, UnsupportedModel, key)


def _add(header: dict, name: str, dtype: str, shape: list[int], size: int) -> None:
    end = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end - size, end]}


def _rename(folder: Path, old: str, new: str) -> None:
    path = own(shard_with(folder, old))

    def header(content: dict) -> None:
        content[new] = content.pop(old)

    def index(content: dict) -> None:
        content["weight_map"][new] = content["weight_map"].pop(old)

    rewrite_header(path, header)
    edit_json(folder / INDEX, index)


@pytest.mark.parametrize("name", ["lm_head.weight", f"{EXPERT}.weight", "vit.perceive.image_newline"])
def test_surplus_and_missing_tensor(folder: Path, name: str) -> None:
    _rename(folder, name, f"other.{name}")
    refused(folder, BadCheckpoint, name, "lacks")


def test_surplus_tensor(folder: Path) -> None:
    _rename(folder, "model.mtp_layers.0.enorm.weight", "model.layers.3.self_attn.extra.weight")
    refused(folder, BadCheckpoint, "model.layers.3.self_attn.extra.weight", "safetensors")


def test_a_layer_beyond_the_last_is_surplus(folder: Path) -> None:
    _rename(folder, "model.mtp_layers.0.enorm.weight", "model.layers.7.input_layernorm.weight")
    refused(folder, BadCheckpoint, "model.layers.7.input_layernorm.weight")


def test_missing_scale(folder: Path) -> None:
    _rename(folder, f"{EXPERT}.scale", "model.mtp_layers.0.x")
    refused(folder, BadCheckpoint, f"{EXPERT}.weight", "scale")


@pytest.mark.parametrize("name", ["model.norm.weight", "model.embed_tokens.weight", f"{EXPERT}.weight"])
def test_wrong_shape(folder: Path, name: str) -> None:
    path = own(shard_with(folder, name))
    rewrite_header(path, lambda h: h[name].update(shape=[2, *h[name]["shape"][:-1], h[name]["shape"][-1] // 2]))
    refused(folder, BadCheckpoint, name, path.name)


@pytest.mark.parametrize(
    ("name", "dtype"), [("model.norm.weight", "I16"), ("lm_head.weight", "I32"), (f"{EXPERT}.weight", "BOOL")]
)
def test_wrong_dtype(folder: Path, name: str, dtype: str) -> None:
    path = own(shard_with(folder, name))

    def change(header: dict) -> None:
        header[name]["dtype"] = dtype

    rewrite_header(path, change)
    refused(folder, BadCheckpoint, name, path.name)


def test_a_norm_in_fp8_has_the_wrong_dtype(folder: Path) -> None:
    name = "model.norm.weight"
    path = own(shard_with(folder, name))

    def change(header: dict) -> None:
        begin = header[name]["data_offsets"][0]
        header[name].update(dtype="F8_E4M3", shape=[128], data_offsets=[begin, begin + 128])
        header["model.norm.scale"] = {"dtype": "F32", "shape": [1], "data_offsets": [begin + 128, begin + 132]}

    rewrite_header(path, change)
    refused(folder, BadCheckpoint, name, path.name)


def test_scale_byte_255(folder: Path) -> None:
    path = patch(folder, f"{EXPERT}.scale", 3, b"\xff")
    with pytest.raises(BadCheckpoint) as caught:
        Engine.open(folder, CPU)
    assert is_one_sentence(caught.value)
    assert f"{EXPERT}.scale" in str(caught.value) and path.name in str(caught.value)


@pytest.mark.parametrize("dtype", ["F8_E5M2", "FANCY", 5, None, ["F32"], {}])
def test_unknown_element_type(folder: Path, dtype: object) -> None:
    path = own(folder / FIRST)

    def change(header: dict) -> None:
        header[next(n for n in header if n != "__metadata__")]["dtype"] = dtype

    rewrite_header(path, change)
    refused(folder, BadCheckpoint, FIRST)


def test_a_name_twice_in_a_header(folder: Path) -> None:
    header, offset = read_header(folder / FIRST)
    data = (folder / FIRST).read_bytes()[offset:]
    name = next(n for n in header if n != "__metadata__")
    text = json.dumps(header)[:-1] + f', "{name}": {json.dumps(header[name])}}}'
    write_file(folder / FIRST, text.encode(), data)
    refused(folder, BadCheckpoint, FIRST)


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_header_length_lies(folder: Path, length: int) -> None:
    header, offset = read_header(folder / FIRST)
    data = (folder / FIRST).read_bytes()[offset:]
    write_file(folder / FIRST, header, data, length)
    refused(folder, BadCheckpoint, FIRST, "download")


OFFSETS = [
    [-8, 0],
    [8, 0],
    [0, 2**70],
    [0],
    [0, 4, 8],
    "ab",
    None,
    [0.5, 8.5],
    ["0", "8"],
    [True, 9],
    [float("inf"), 1],
]


@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
def test_bad_offsets(tmp_path: Path, offsets: object) -> None:
    header = {"w": {"dtype": "U8", "shape": [8], "data_offsets": offsets}}
    with pytest.raises(BadCheckpoint, match=r"x\.safetensors.*tensor w|tensor w.*x\.safetensors|tensor w") as caught:
        Shard(write_file(tmp_path / "x.safetensors", header, bytes(16)))
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize(
    "shape", [[-1, -8], [2.5], ["8"], 8, None, [True] * 3 + [8], [float("inf")], [1e3], [[8]]], ids=str
)
def test_bad_shapes(tmp_path: Path, shape: object) -> None:
    header = {"w": {"dtype": "U8", "shape": shape, "data_offsets": [0, 8]}}
    with pytest.raises(BadCheckpoint, match="tensor w"):
        Shard(write_file(tmp_path / "x.safetensors", header, bytes(8)))


def test_overlapping_tensors(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
        "b": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]},
    }
    with pytest.raises(BadCheckpoint, match=r"x\.safetensors.*(a and b|b and a)") as caught:
        Shard(write_file(tmp_path / "x.safetensors", header, bytes(12)))
    assert is_one_sentence(caught.value)


def test_an_id_beyond_the_vocabulary(folder: Path) -> None:
    def change(content: dict) -> None:
        content["added_tokens"].append({**content["added_tokens"][0], "id": 9999, "content": "<far>"})

    edit_json(folder / "tokenizer.json", change)
    refused(folder, BadCheckpoint, "tokenizer.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "I8", "U8", "F8_E4M3", "F8_E8M0", "BOOL", "X"]) | JSON,
        "shape": st.lists(st.integers(-2, 5), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-4, 70), min_size=2, max_size=2) | JSON,
    },
)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _try(path: Path) -> None:
    """Opening and looking at every tensor gives tensors or an EngineError, never anything else."""
    try:
        entries = Shard(path).entries
        for entry in entries.values():
            assert entry.view().shape == entry.shape
        for name in entries:
            found = find_stored(entries, name, None)
            if found is not None:
                assert isinstance(found[0], StoredTensor)
                found[0].decode(torch.float32)
    except EngineError as error:
        assert "\n" not in str(error)


@FUZZ
@given(
    header=st.dictionaries(st.sampled_from(["w.weight", "w.scale", "v", "__metadata__"]), ENTRY | JSON, max_size=4),
    data=st.binary(max_size=64),
)
@example(header={"v": {"dtype": ["F32"], "shape": [], "data_offsets": [0, 4]}}, data=b"1234")
@example(header={"v": {"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, 4]}}, data=b"1234")
def test_any_header_gives_tensors_or_a_sentence(tmp_path: Path, header: dict, data: bytes) -> None:
    _try(write_file(tmp_path / "x.safetensors", header, data))


@FUZZ
@given(content=st.binary(max_size=80), length=st.integers(0, 90) | st.none())
def test_any_bytes_give_tensors_or_a_sentence(tmp_path: Path, content: bytes, length: int | None) -> None:
    _try(write_file(tmp_path / "x.safetensors", content, b"", length))


@FUZZ
@given(
    config=st.dictionaries(
        st.sampled_from(["model_type", "text_config", "vision_config", "hidden_size"]), JSON, max_size=4
    )
)
@example(config={"model_type": "hy_v4_vl", "text_config": "x", "vision_config": "y"})
@example(config={"model_type": "hy_v4", "num_hidden_layers": 1})
def test_any_config_gives_a_sentence(oracle_case: GetCase, tmp_path: Path, config: dict) -> None:
    folder = tmp_path / "fuzz"
    if not folder.exists():
        copy_of(oracle_case("hy_v4_vl").path, folder)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineError) as caught:
        describe(folder, CPU)
    assert "\n" not in str(caught.value)


def test_nothing_from_a_checkpoint_is_executed() -> None:
    """No pickle, no remote code: the sources never name the functions that would."""
    sources = "".join(p.read_text() for p in (Path("engine")).rglob("*.py"))
    assert not re.search(r"torch\.load\(|import pickle|trust_remote_code|\bexec\(|\beval\(", sources)


def test_the_checkpoint_fingerprint_tells_models_apart(folder: Path) -> None:
    before = Checkpoint(folder).fingerprint()
    assert Checkpoint(folder).fingerprint() == before
    edit_json(folder / "config.json", lambda c: c["text_config"].update(rms_norm_eps=2e-5))
    assert Checkpoint(folder).fingerprint() != before
