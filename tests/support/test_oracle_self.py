"""The maker itself: layouts on disk, readability by transformers, determinism, and that mistakes would show."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support import compare, vit_v4
from tests.support.oracle import FAMILIES, OracleCase, cached_case, make_checkpoint
from tests.support.oracle.families.base import load_directly
from tests.support.oracle.families.deepseek_v4_vision import VisionPrompt
from tests.support.oracle.layout import CheckpointWriter, scale_of
from tests.support.oracle.maker import fixed_threads
from tests.support.oracle.prompt import Prompt

GetCase = Callable[..., OracleCase]
SETTINGS = [
    ("deepseek_v4", {}),
    ("deepseek_v4", {"base": True}),
    ("deepseek_v4", {"fp8_block": (32, 32)}),
    ("deepseek_v4_vision", {}),
    ("deepseek_v32", {}),
    ("deepseek_v32", {"fp8_block": (32, 32)}),
    ("glm_moe_dsa", {}),
    ("glm_moe_dsa", {"dtype": "fp8"}),
    ("hy_v4", {}),
    ("hy_v4", {"experts": "bf16"}),
    ("hy_v4", {"experts": "mxfp8", "mxfp8_names": "modelopt"}),
    ("hy_v4_vl", {}),
    ("hy_v4_vl", {"experts": "mxfp8"}),
]
# What transformers 5.24 reads as it is; it cannot cut partial blocks and does not know the vision tensors.
READABLE = [
    ("deepseek_v4", {}),
    ("deepseek_v4", {"base": True}),
    ("deepseek_v4", {"fp8_block": (32, 32)}),
    ("deepseek_v32", {"fp8_block": (32, 32)}),
    ("glm_moe_dsa", {}),
    ("hy_v4_vl", {}),
    ("hy_v4_vl", {"experts": "bf16"}),
]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The thread count of the maker, which is also the fastest for such small models."""
    with fixed_threads():
        yield


def name_of(setting: tuple[str, dict[str, object]]) -> str:
    return "-".join([setting[0], *(f"{k}={v}" for k, v in setting[1].items())]).replace(" ", "")


settings = pytest.mark.parametrize("setting", SETTINGS, ids=name_of)


@settings
def test_directory_is_complete_and_fair(oracle_case: GetCase, setting: tuple[str, dict[str, object]]) -> None:
    case = oracle_case(setting[0], **setting[1])
    files = {f.name for f in case.path.iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} <= files
    assert {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} <= files
    assert ("chat_template.jinja" in files) == case.family.startswith(("hy_v4", "glm"))
    assert ("preprocessor_config.json" in files) == (case.family == "hy_v4_vl")
    assert case.info["smallest_selection_margin"] > 2e-5 and case.info["smallest_greedy_logit_gap"] > 2e-3
    assert case.prefix_lengths == [127, 128, 129, 257]
    assert 0.5 < case.info["logits_std"] < 2
    assert all(0.5 < std < 2 for std in case.info["attention_score_std"].values())
    assert all(torch.isfinite(t).all() for n, t in case.tensors.items() if not n.startswith("topk_margin"))
    assert all(image.exists() for image in case.image_paths)
    compare.assert_matches(case.tensors, {n: t for n, t in case.tensors.items() if not n.startswith("topk_margin")})


@settings
def test_every_quantized_weight_has_a_scale_of_its_shape(
    oracle_case: GetCase, setting: tuple[str, dict[str, object]]
) -> None:
    case = oracle_case(setting[0], **setting[1])
    raw = case.raw()
    block = case.info["fp8_block"]
    dtypes: Counter[torch.dtype] = Counter()
    for name, tensor in raw.items():
        scale = scale_of(raw, name)
        if scale is None:
            continue
        dtypes[tensor.dtype] += 1
        rows, cols = tensor.shape[-2:]
        if tensor.dtype == torch.int8:
            assert scale.dtype == torch.float8_e8m0fnu and scale.shape == (rows, cols * 2 // 32), name
        elif scale.dtype == torch.uint8:
            assert tensor.dtype == torch.float8_e4m3fn and scale.shape == (*tensor.shape[:-1], cols // 32), name
        else:
            assert tensor.dtype == torch.float8_e4m3fn, name
            assert scale.shape == (-(-rows // block[0]), -(-cols // block[1])), name
    quantized = "quantization_config" in case.config
    assert bool(dtypes) == quantized
    assert any(case.is_mtp(name) for name in raw), "no MTP tensors to skip"
    decoded = case.decoded()
    assert all(torch.isfinite(t.float()).all() for t in decoded.values())


@pytest.mark.parametrize("setting", READABLE, ids=name_of)
def test_transformers_reads_the_directory_itself(oracle_case: GetCase, setting: tuple[str, dict[str, object]]) -> None:
    case = oracle_case(setting[0], **setting[1])
    model, report = load_directly(FAMILIES[case.family], case.path)
    assert not report["missing_keys"]
    assert [k for k in report["unexpected_keys"] if not case.is_mtp(k)] == []
    compare.assert_close(logits_of(model, case), case.tensors["logits"], tolerance=1e-5)


class Replay(CheckpointWriter):
    """A writer that stores nothing and answers with what lies on disk, so that an export becomes an import."""

    def __init__(self, case: OracleCase) -> None:
        super().__init__()
        self.tensors = case.raw()
        self.decoded = case.decoded()
        self.unused = {n for n in self.decoded if not case.is_mtp(n)}

    def _read(self, name: str) -> Tensor:
        self.unused.discard(name)
        return self.decoded.get(name, torch.zeros(()))  # MTP tensors go nowhere

    def put(self, name: str, value: Tensor, dtype: torch.dtype) -> Tensor:
        return self._read(name)

    def put_fp8(self, weight: str, scale: str, value: Tensor, block: object, scale_dtype: torch.dtype) -> Tensor:
        return self._read(weight)

    def put_mxfp4(self, module: str, value: Tensor) -> Tensor:
        return self._read(f"{module}.weight")

    def copy_prefix(self, source: str, target: str) -> None:
        pass


def replayed(case: OracleCase, work: Path) -> tuple[nn.Module, Prompt]:
    """The reference model with the weights on disk, and the prompt of the case."""
    family, writer = FAMILIES[case.family], Replay(case)
    model = family.build(case.path)
    family.export(model.state_dict(), writer, case.config, case.info["options"])
    shutil.copytree(case.path, work, dirs_exist_ok=True)
    like = family.prepare_media(work, model, writer, case.config, case.info["seed"])
    assert not writer.unused, f"on disk but in no model: {sorted(writer.unused)[:3]}"
    return model, like.place(case.input_ids.clone())


@settings
def test_stored_bytes_reproduce_the_expected_logits(
    oracle_case: GetCase, setting: tuple[str, dict[str, object]], tmp_path: Path
) -> None:
    case = oracle_case(setting[0], **setting[1])
    model, prompt = replayed(case, tmp_path)
    assert torch.equal(prompt.ids, case.input_ids)
    with torch.no_grad():
        logits = model(**prompt.inputs(prompt.ids), use_cache=False).logits[0]
    compare.assert_close(logits, case.tensors["logits"], tolerance=1e-5)


@torch.no_grad()
def logits_of(model: nn.Module, case: OracleCase, **kwargs: Tensor) -> Tensor:
    inputs = {"input_ids": case.input_ids[None], **kwargs}
    if "pixel_values" in case.tensors:
        inputs |= {k: case.tensors[k] for k in ("pixel_values", "image_grid_thw")}
        inputs["mm_token_type_ids"] = (case.input_ids == case.config["image_token_id"]).int()[None]
    return model(**inputs, use_cache=False).logits[0]


def _other_latent_epsilons(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if path.endswith(("q_a_layernorm", "kv_a_layernorm", "k_norm", "q_a_norm", "kv_norm")):
            name = "variance_epsilon" if hasattr(module, "variance_epsilon") else "eps"
            setattr(module, name, 1e-5 if getattr(module, name) < 5e-6 else 1e-6)


def _no_clamp(model: nn.Module) -> None:
    for module in model.modules():
        for name in ("limit", "swiglu_limit"):
            if name in vars(module):
                setattr(module, name, 1e9)


@pytest.mark.parametrize("mistake", [_other_latent_epsilons, _no_clamp])
@pytest.mark.parametrize("family", ["deepseek_v4", "deepseek_v32", "glm_moe_dsa", "hy_v4_vl"])
def test_a_mistake_shows(oracle_case: GetCase, family: str, mistake: Callable[[nn.Module], None]) -> None:
    case = oracle_case(family, fp8_block=(32, 32)) if family == "deepseek_v32" else oracle_case(family)
    if mistake is _no_clamp and "swiglu_limit" not in case.text_config:
        pytest.skip("this family does not clamp")
    model, _ = load_directly(FAMILIES[family], case.path)
    mistake(model)
    assert compare.relative_rms(logits_of(model, case), case.tensors["logits"]) > 1e-3


def test_plain_positions_show(oracle_case: GetCase) -> None:
    case = oracle_case("hy_v4_vl")
    model, _ = load_directly(FAMILIES["hy_v4_vl"], case.path)
    plain = torch.arange(len(case.input_ids)).expand(3, 1, -1)
    wrong = logits_of(model, case, position_ids=plain)
    assert compare.relative_rms(wrong, case.tensors["logits"]) > 1e-3


def test_scales_cover_many_exponents(oracle_case: GetCase) -> None:
    case = oracle_case("deepseek_v4")
    raw = case.raw()
    scales = [scale_of(raw, n) for n, t in raw.items() if t.dtype == torch.int8]
    exponents = torch.cat([s.view(torch.uint8).flatten() for s in scales if s is not None]).unique()
    assert len(exponents) >= 6


def test_same_seed_same_bytes_and_other_seed_other_bytes(tmp_path: Path) -> None:
    def digest(folder: Path) -> str:
        files = sorted(f for f in folder.rglob("*") if f.is_file())
        return hashlib.sha256(b"".join(f.name.encode() + f.read_bytes() for f in files)).hexdigest()

    made = [make_checkpoint("glm_moe_dsa", tmp_path / str(i), seed=s, tokens=129) for i, s in enumerate((3, 3, 4))]
    assert digest(made[0].path) == digest(made[1].path) != digest(made[2].path)
    with pytest.raises(FileExistsError):
        make_checkpoint("glm_moe_dsa", tmp_path / "0")


def test_a_cached_case_is_made_once(oracle_root: Path, oracle_case: GetCase) -> None:
    case = oracle_case("glm_moe_dsa")
    before = (case.path / "config.json").stat().st_mtime_ns
    assert cached_case(oracle_root, "glm_moe_dsa", options={"dtype": "bf16"}).path == case.path
    assert (case.path / "config.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="no option"):
        cached_case(oracle_root, "glm_moe_dsa", expert="bf16")


def test_overrides_reach_nested_configs(tmp_path: Path) -> None:
    case = make_checkpoint(
        "hy_v4_vl", tmp_path / "c", overrides={"index_topk": 16, "vision_config.num_hidden_layers": 1}
    )
    config = json.loads((case.path / "config.json").read_text())
    assert config["text_config"]["index_topk"] == 16 and case.tensors["topk.0"].shape[1] == 16
    assert not any(n.startswith("vit.layers.1.") for n in case.raw())


# ---- DeepSeek-V4 with images


def test_image_block_layout() -> None:
    kinds, order = vit_v4.image_block(vit_v4.Grid(3, 2), 0)
    assert "".join("SPINE"[k] for k in kinds) == "PPPSIIIINNIPIPNPE"
    assert order.tolist() == [0, 2, 1, 3, 4, 5]
    for rows in range(1, 6):
        for cols in range(1, 6):
            for start in range(8):
                kinds, order = vit_v4.image_block(vit_v4.Grid(rows, cols), start)
                first = int((kinds == vit_v4.START).nonzero())
                assert (start + first + 1) % 4 == 0 and (start + len(kinds) - 1) % 4 == 0
                assert len(kinds) - first == vit_v4.span_tokens(vit_v4.Grid(rows, cols))
                assert (
                    sorted(order.tolist()) == list(range(rows * cols))
                    and int((kinds == vit_v4.IMAGE).sum()) == rows * cols
                )


@pytest.mark.parametrize("size", [(512, 384), (1200, 150), (140, 1200), (2000, 3000), (30, 20), (100, 20), (384, 384)])
def test_image_sizes_stay_in_the_token_budget(size: tuple[int, int]) -> None:
    config = vit_v4.VisionConfig()
    height, width = vit_v4.target_size(*size, config)
    assert height % 14 == 0 and width % 14 == 0 and height and width
    assert vit_v4.span_tokens(vit_v4.merged_grid(height, width, config)) + 3 <= config.max_n_token


def test_image_spans_stand_in_the_prompt(oracle_case: GetCase) -> None:
    case = oracle_case("deepseek_v4_vision")
    vocab = case.config["vocab_size"]
    for image in case.info["images"]:
        first = image["first_token"]
        assert (case.input_ids[first : first + image["tokens"]] - vocab).tolist() == image["kinds"]
    assert int((case.input_ids == vocab + vit_v4.IMAGE).sum()) == len(case.tensors["image_features"])
    features = case.tensors["image_features"]
    assert 0.3 < float(features.std()) < 3


def _narrow_window(model: nn.Module, prompt: VisionPrompt) -> VisionPrompt:
    return replace(prompt, see_spans=False)


def _own_bias(model: nn.Module, prompt: VisionPrompt) -> VisionPrompt:
    for layer in model.model.layers:
        layer.mlp.gate._forward_hooks.clear()
    return prompt


@pytest.mark.parametrize("mistake", [_narrow_window, _own_bias])
def test_an_image_mistake_shows(
    oracle_case: GetCase, mistake: Callable[[nn.Module, VisionPrompt], VisionPrompt], tmp_path: Path
) -> None:
    case = oracle_case("deepseek_v4_vision")
    model, prompt = replayed(case, tmp_path)
    assert isinstance(prompt, VisionPrompt)
    prompt = mistake(model, prompt)
    with torch.no_grad():
        logits = model(**prompt.inputs(prompt.ids), use_cache=False).logits[0]
    assert compare.relative_rms(logits, case.tensors["logits"]) > 1e-2
