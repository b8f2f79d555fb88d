"""Published config.json values parse, and give the published numbers of parameters, tensors and bytes without weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from engine.cache.layout import declare_cache
from engine.families import find_family
from engine.families.base import Config, Family
from engine.model.loader import declare, disk_name
from engine.model.spec import CompressedAttention, LatentAttention, Layer, ModelSpec, Moe, PlainResidual
from engine.model.weights import Parameter
from tests import published

NAMES = list(published.TOTALS)


@dataclass(frozen=True)
class Described:
    """A published model: what its family makes of the config, and every parameter with and without the MTP layer."""

    config: Config
    family: Family
    spec: ModelSpec
    parameters: Mapping[str, Parameter]
    with_mtp: Mapping[str, Parameter]


_known: dict[str, Described] = {}


def _described(name: str) -> Described:
    if name not in _known:
        config = published.load(name)
        family = find_family(config)
        spec = family.parse(config)
        parameters = declare(spec)
        _known[name] = Described(config, family, spec, parameters, {**declare_with_mtp(spec), **parameters})
    return _known[name]


def declare_with_mtp(spec: ModelSpec) -> dict[str, Parameter]:
    """The parameters of one more layer (for V4 of the window-only kind), and the projections that belong to it."""
    last = next(la for la in reversed(spec.layers) if isinstance(la.mlp, Moe) and not la.mlp.hash_routed)
    attention = last.attention
    if isinstance(attention, CompressedAttention):
        attention = replace(attention, ratio=0, overlap=False, indexer=None)
    else:
        owner = next(
            la.attention for la in spec.layers if isinstance(la.attention, LatentAttention) and la.attention.indexer
        )
        attention = replace(owner, index_source=len(spec.layers))
    spec = replace(spec, layers=(*spec.layers, Layer(attention, last.mlp, last.residual)))
    hidden, prefix = spec.hidden, f"layers.{len(spec.layers) - 1}.mtp."
    extra = {name: Parameter(prefix + name, (hidden,), "vector") for name in ("enorm", "hnorm", "norm")}
    extra |= {name: Parameter(prefix + name, (hidden, hidden), "matrix") for name in ("e_proj", "h_proj")}
    if not isinstance(last.residual, PlainResidual):
        n = last.residual.streams
        for name, shape in (("fn", (n, n * hidden)), ("base", (n,)), ("scale", (1,))):
            extra[name] = Parameter(f"collapse.mtp.{name}", shape, "vector")
    return {**declare(spec), **{p.name: p for p in extra.values()}}


def _count(parameters: Mapping[str, Parameter]) -> int:
    return sum(math.prod(p.shape) for p in parameters.values() if p.kind != "table")


def _bytes(described: Described) -> tuple[int, int]:
    """(bytes, tensors) of a checkpoint with the MTP layer, by the family's storage rules."""
    config, total, tensors = described.config, 0, 0
    byte_scales = (config.get("quantization_config") or {}).get("scale_fmt") == "ue8m0" and "expert_dtype" in config
    for parameter in described.with_mtp.values():
        kind = described.family.stored(parameter, config)
        if parameter.name.endswith(("mtp.e_proj", "mtp.h_proj")) and described.family.name == "deepseek_v4":
            kind = "fp8"
        rows, columns = parameter.shape[-2:] if len(parameter.shape) > 1 else (1, parameter.shape[0])
        grid = math.ceil(rows / 128) * math.ceil(columns / 128)
        total += {
            "fp32": 4 * rows * columns,
            "bf16": 2 * math.prod(parameter.shape),
            "int64": 8 * rows * columns,
            "fp8": rows * columns + grid * (1 if byte_scales else 4),
            "mxfp8": rows * columns + rows * columns // 32,
            "mxfp4": rows * columns // 2 + rows * columns // 32,
        }[kind]
        tensors += 2 if kind in ("fp8", "mxfp8", "mxfp4") else 1
    return total, tensors


def _close(value: float, expected: float, tolerance: float = published.TOLERANCE) -> None:
    assert value == pytest.approx(expected, rel=tolerance), f"{value / expected - 1:+.2%}"


@pytest.mark.parametrize("name", NAMES)
def test_parameters(name: str) -> None:
    described, totals = _described(name), published.TOTALS[name]
    _close(_count(described.parameters), totals.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_name_on_disk_and_a_storage_rule(name: str) -> None:
    described = _described(name)
    names = [disk_name(described.family, parameter) for parameter in described.parameters]
    assert len(set(names)) == len(names)
    rules = {described.family.stored(p, described.config) for p in described.parameters.values()}
    assert rules <= {"fp32", "bf16", "fp8", "mxfp8", "mxfp4", "int64"}


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in NAMES for k in published.TOTALS[n].checkpoint_bytes])
def test_bytes_on_disk(name: str, kind: str) -> None:
    described = _described(name)
    if kind == "fp8" and "quantization_config" not in described.config:
        described = replace(described, config={**described.config, "quantization_config": {"quant_method": "fp8"}})
    _close(_bytes(described)[0], published.TOTALS[name].checkpoint_bytes[kind])


@pytest.mark.parametrize("name", list(published.MAIN_LAYERS_BYTES))
def test_bytes_of_the_main_layers(name: str) -> None:
    described = _described(name)
    only_main = replace(described, with_mtp=described.parameters)
    _close(_bytes(only_main)[0], published.MAIN_LAYERS_BYTES[name])


@pytest.mark.parametrize("name", list(published.TENSORS))
def test_number_of_tensors(name: str) -> None:
    assert _bytes(_described(name))[1] == published.TENSORS[name]


@pytest.mark.parametrize("name", NAMES)
def test_cache_bytes_per_token(name: str) -> None:
    layout = declare_cache(_described(name).spec, torch.bfloat16)
    assert layout.bytes_per_token == published.TOTALS[name].cache_bytes_bf16


def test_state_of_a_v4_conversation() -> None:
    layout = declare_cache(_described("deepseek_v4_flash").spec, torch.bfloat16)
    windows = sum(f.nbytes for f in layout.frontiers if f.name == "window")
    assert windows == 43 * 128 * 512 * 2
    _close(layout.bytes_per_conversation - windows, 12.2e6, 0.02)


def _layers(name: str) -> list[Any]:
    return [layer.attention for layer in _described(name).spec.layers]


def test_layers_of_the_published_models() -> None:
    flash, pro = ([a.ratio for a in _layers(f"deepseek_v4_{size}")] for size in ("flash", "pro"))
    assert flash[:4] == [0, 0, 4, 128] and [flash.count(r) for r in (0, 4, 128)] == [2, 21, 20]
    assert pro[:3] == [128, 128, 4] and [pro.count(r) for r in (0, 4, 128)] == [0, 30, 31]
    assert [layer.mlp.hash_routed for layer in _described("deepseek_v4_pro").spec.layers[:4]] == [
        True,
        True,
        True,
        False,
    ]
    own = [i for i, a in enumerate(_layers("glm_5_2")) if a.indexer]
    assert own == [0, 1, 2, *range(6, 78, 4)] and len(own) == 21
    assert all(a.indexer for a in _layers("glm_5_0"))
    assert _described("glm_5_2").spec.eos_ids == {154820, 154827, 154829} and _described(
        "deepseek_v32"
    ).spec.eos_ids == {1}
    v32 = _layers("deepseek_v32")[0]
    assert v32.scale * math.sqrt(192) == pytest.approx(1.8738, abs=1e-4)
