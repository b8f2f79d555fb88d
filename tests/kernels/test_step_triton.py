"""The rest of a step in Triton (norms, rotation, activation, routing, hyper-connections, compressor) against the references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels.compressor.reference as compressor_reference
import kernels.hyper_connection.reference as hyper_reference
import kernels.norm.reference as norm_reference
import kernels.rope.reference as rope_reference
import kernels.router.reference as router_reference
import kernels.swiglu.reference as swiglu_reference
from tests.kernels.cases import random_generator, to

norm = pytest.importorskip("kernels.norm.triton")
rope = pytest.importorskip("kernels.rope.triton")
router = pytest.importorskip("kernels.router.triton")
hyper = pytest.importorskip("kernels.hyper_connection.triton")
compressor = pytest.importorskip("kernels.compressor.triton")
activation = pytest.importorskip("kernels.swiglu.triton")


def same(actual: Any, expected: Any, limit: float = 2e-6) -> None:
    """Every tensor within `limit` of the reference by norm; no NaN."""
    pairs = zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    for a, e in pairs:
        assert a.shape == e.shape
        assert a.dtype == e.dtype
        difference = (a.double().cpu() - e.double()).norm()
        assert difference <= limit * e.double().norm(), float(difference / e.double().norm())


@pytest.mark.parametrize("shape", [(3, 96), (1, 5, 64), (2, 1)])
def test_norms(shape: tuple[int, ...], device: str) -> None:
    random = random_generator(0)
    x, weight, bias = (torch.randn(s, generator=random) for s in (shape, shape[-1:], shape[-1:]))
    same(norm.rms_norm(x.to(device), weight.to(device), 1e-6), norm_reference.rms_norm(x, weight, 1e-6))
    same(norm.rms_norm(x.to(device), None, 1e-6), norm_reference.rms_norm(x, None, 1e-6))
    if len(shape) == 2:
        actual = norm.add_rms_norm(*to((x, x.flip(0), weight), device), 1e-6)
        same(actual, norm_reference.add_rms_norm(x, x.flip(0), weight, 1e-6))
    if shape[-1] > 1:
        actual = norm.layer_norm(*to((x, weight, bias), device), 1e-6)
        same(actual, norm_reference.layer_norm(x, weight, bias, 1e-6), 5e-6)


@pytest.mark.parametrize("limit", [None, 1.5])
@pytest.mark.parametrize("shape", [(3, 2, 38), (1, 2100), (0, 8)])
def test_activation(shape: tuple[int, ...], limit: float | None, device: str) -> None:
    x = torch.randn(shape, generator=random_generator(0)) * 3
    expected = swiglu_reference.swiglu(x, limit)
    same(activation.swiglu(x.to(device), limit), expected)
    strided = torch.cat([x, x], -1).to(device)[..., : shape[-1]]
    same(activation.swiglu(strided, limit), expected)
    same(activation.swiglu(x.bfloat16().to(device), limit).float(), expected, 1e-2)


def test_activation_keeps_what_is_no_number(device: str) -> None:
    x = torch.tensor([[float("nan"), 1.0, 1.0, 2.0, float("nan"), 3.0]], device=device)  # a gate, and another's up
    assert activation.swiglu(x, 1.0).isnan().tolist() == [[True, True, False]]
    assert swiglu_reference.swiglu(x, 1.0).isnan().tolist() == [[True, True, False]]


@pytest.mark.parametrize("name", ["rotate_interleaved", "rotate_half_split"])
@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize(("width", "first"), [(24, 0), (32, 0), (37, 5), (31, 7)])
def test_rotation(name: str, conjugate: bool, width: int, first: int, device: str) -> None:
    random = random_generator(1)
    x = torch.randn(3, 20, 48, generator=random)[..., 8 : 8 + width]
    angles = torch.polar(torch.ones(3, 12), torch.randn(3, 12, generator=random))
    turned = (angles.conj(), angles.to(device).conj()) if conjugate else (angles, angles.to(device))
    actual = getattr(rope, name)(x.to(device), turned[1], first)
    same(actual, getattr(rope_reference, name)(x, turned[0], first))
    kept = [c for c in range(width) if not first <= c < first + 24]
    assert torch.equal(actual[..., kept].cpu(), x[..., kept])


def test_rotations_are_the_definition() -> None:
    random = random_generator(2)
    x, angles = torch.randn(4, 2, 11, generator=random), torch.randn(4, 3, generator=random)
    rotation = torch.polar(torch.ones(4, 3), angles)
    for name, pairs in (
        ("rotate_interleaved", [(0, 1), (2, 3), (4, 5)]),
        ("rotate_half_split", [(0, 3), (1, 4), (2, 5)]),
    ):
        expected = x.double()
        for i, (a, b) in enumerate(pairs):
            cos, sin = angles[:, i, None].double().cos(), angles[:, i, None].double().sin()
            expected[..., 3 + a] = x[..., 3 + a] * cos - x[..., 3 + b] * sin
            expected[..., 3 + b] = x[..., 3 + b] * cos + x[..., 3 + a] * sin
        same(getattr(rope_reference, name)(x, rotation, 3), expected.float())


@pytest.mark.parametrize("scoring", ["sigmoid", "sqrt_softplus"])
@pytest.mark.parametrize(
    ("experts", "k", "groups", "kept"), [(16, 4, 1, 1), (33, 6, 1, 1), (32, 5, 8, 3), (64, 1, 4, 2)]
)
def test_routing(scoring: str, experts: int, k: int, groups: int, kept: int, device: str) -> None:
    random = random_generator(experts)
    logits = torch.randn(7, experts, generator=random) * 6
    bias = torch.randn(experts, generator=random) * 0.1
    for b in (bias, bias + torch.randn(7, experts, generator=random)):
        ids, weights = router.route(logits.to(device), b.to(device), k, scoring, 2.5, groups, kept)
        expected = router_reference.route(logits, b, k, scoring, 2.5, groups, kept)  # type: ignore[arg-type]
        assert torch.equal(ids.cpu(), expected[0])
        same(weights, expected[1])
    fixed = router.route_fixed(logits.to(device), ids, scoring, 1.5)
    same(fixed, router_reference.route_fixed(logits, ids.cpu(), scoring, 1.5))  # type: ignore[arg-type]


def test_routing_ties_go_to_the_lowest_expert(device: str) -> None:
    ids, weights = router.route(torch.zeros(2, 12, device=device), torch.zeros(12, device=device), 3, "sigmoid", 1.0)
    assert ids.tolist() == [[0, 1, 2]] * 2
    assert torch.allclose(weights.cpu(), torch.full((2, 3), 1 / 3))


HIDDEN = 80


def site(streams: int, rows: int, random: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Projection, scale and base of `rows` gates, and the norm's weight."""
    sizes = (rows, streams * HIDDEN), (rows,), (rows,), (HIDDEN,)
    return tuple(torch.randn(*size, generator=random) * 0.3 for size in sizes)


@pytest.mark.parametrize("tokens", [0, 1, 3, 20])
@pytest.mark.parametrize(("name", "last"), [("ihc_enter", 2.0), ("mhc_enter", 20)])
def test_hyper_connections(name: str, last: float, tokens: int, device: str) -> None:
    random, n = random_generator(tokens), 4
    streams, output = (torch.randn(*s, generator=random) for s in ((tokens, n, HIDDEN), (tokens, HIDDEN)))
    kernel, twin = getattr(hyper, name), getattr(hyper_reference, name)
    rows = 2 * n if name == "ihc_enter" else n * (n + 2)
    one, two, three = site(n, rows, random), site(n, rows, random), site(n, n, random)
    first = twin(streams[:, :1].expand(-1, n, -1), None, None, *one, 1e-6, 1e-4, last)
    shared = streams.to(device)[:, :1].expand(-1, n, -1)  # how the embedding enters the first layer
    same(kernel(shared, None, None, *to(one, device), 1e-6, 1e-4, last), first)
    pending = streams, first[1], output
    same(kernel(*to((*pending, *two), device), 1e-6, 1e-4, last), twin(*pending, *two, 1e-6, 1e-4, last))
    merged = hyper.collapse(*to((*pending, *three), device), 1e-6, 1e-4)
    same(merged, hyper_reference.collapse(*pending, *three, 1e-6, 1e-4))


def test_a_tokens_streams_do_not_depend_on_its_neighbours(device: str) -> None:
    random, n = random_generator(5), 4
    streams, output = torch.randn(3, n, HIDDEN, generator=random), torch.randn(3, HIDDEN, generator=random)
    parts = to((streams, torch.rand(3, n + n * n, generator=random), output), device)
    parameters = to(site(n, n * (n + 2), random), device)
    together = hyper.mhc_enter(*parts, *parameters, 1e-6, 1e-4, 20)
    alone = hyper.mhc_enter(*(part[1:2] for part in parts), *parameters, 1e-6, 1e-4, 20)
    assert all(torch.equal(a[1:2], b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("overlap", [False, True])
def test_compression(overlap: bool, device: str) -> None:
    random = random_generator(2)
    ratio, width = 4, 48
    channels, tokens = (2 * width, 2 * ratio) if overlap else (width, ratio)
    rows = torch.randn(30, 2, channels, generator=random)
    slots = torch.randint(30, (5, tokens), generator=random)
    slots[0, :ratio] = -1 if overlap else slots[0, :ratio]
    slots[1, 0] = -1
    bias = torch.randn(ratio, channels, generator=random)
    actual = compressor.compress_windows(*to((rows, slots, bias), device), overlap)
    same(actual, compressor_reference.compress_windows(rows, slots, bias, overlap))
    assert len(compressor.compress_windows(*to((rows, slots[:0], bias), device), overlap)) == 0
