"""Compiled norms, rotation, routing and hyper-connections against their plain-torch twins; skipped where no C compiler is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels.hyper_connection as streams_room
import kernels.norm as norm_room
import kernels.rope as rope_room
import kernels.router as router_room
from kernels.choose import can_run, use
from kernels.hyper_connection import reference as streams_reference
from kernels.norm import reference as norm_reference
from kernels.rope import reference as rope_reference
from kernels.router import reference as router_reference
from tests.support.compare import relative_rms

pytestmark = pytest.mark.skipif(
    not can_run("rms_norm", "cpu") or not can_run("ihc_enter", "cpu"), reason="no C compiler on this machine"
)
SIZES = [(1, 4, 384), (1, 2, 37), (7, 4, 33), (300, 4, 128), (2, 1, 1), (0, 4, 64)]


@pytest.mark.parametrize("shape", [(1, 384), (5, 37), (3, 8, 64), (1, 1), (0, 16), (700, 96)])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_is_the_references(shape: tuple[int, ...], weighted: bool) -> None:
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(*shape, generator=generator) * 3
    weight = torch.randn(shape[-1], generator=generator) if weighted else None
    with use("rms_norm", "cpu"):
        got = norm_room.rms_norm(x, weight, 1e-5)
    wanted = norm_reference.rms_norm(x.double(), None if weight is None else weight.double(), 1e-5).float()
    assert got.shape == x.shape
    if x.numel():
        assert relative_rms(norm_reference.rms_norm(x, weight, 1e-5), got) < 1e-6
        assert wanted.isfinite().all()


def test_rms_norm_of_rows_that_are_not_contiguous_and_tiny() -> None:
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(1)).T * 1e-4  # epsilon decides
    with use("rms_norm", "cpu"):
        got = norm_room.rms_norm(x, None, 1e-5)
    assert relative_rms(norm_reference.rms_norm(x, None, 1e-5), got) < 1e-6


@pytest.mark.parametrize("shape", [(1, 384), (5, 37), (1, 1), (0, 16), (700, 96)])
def test_addition_and_norm_are_the_references(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(shape[1])
    x, added = torch.randn(*shape, generator=generator), torch.randn(*shape, generator=generator) * 2
    weight = torch.randn(shape[1], generator=generator)
    with use("add_rms_norm", "cpu"):
        total, normed = norm_room.add_rms_norm(x, added, weight, 1e-5)
    wanted = norm_reference.add_rms_norm(x, added, weight, 1e-5)
    assert torch.equal(total, wanted[0])
    assert normed.shape == shape
    if x.numel():
        assert relative_rms(wanted[1], normed) < 1e-6


KINDS = {"ihc_enter": (lambda n: 2 * n, 2.0), "mhc_enter": (lambda n: n * (n + 2), 20), "collapse": (lambda n: n, None)}


class Site:
    """One token row after another at a site of `kind`, with the output of a block of `before` still to be added."""

    def __init__(self, kind: str, before: str, shape: tuple[int, int, int]) -> None:
        tokens, n, hidden = shape
        generator = torch.Generator().manual_seed(tokens + hidden)

        def random(*size: int) -> torch.Tensor:
            return torch.randn(*size, generator=generator)

        self.kind, rows = kind, KINDS[kind][0](n)
        self.streams, self.output, self.mix = random(tokens, n, hidden), random(tokens, hidden), None
        if before == "ihc":
            self.mix = random(tokens, n)
        if before == "mhc":
            self.mix = torch.cat([random(tokens, n), torch.rand(tokens, n * n, generator=generator)], dim=1)
        last = KINDS[kind][1]
        parameters = random(rows, n * hidden) / hidden**0.5, random(rows), random(rows), random(hidden), 1e-5, 1e-6
        self.parameters = parameters if last is None else (*parameters, last)

    def run(self, room: Any, rows: slice = slice(None)) -> tuple[torch.Tensor, ...]:
        pending = (None, None) if self.mix is None else (self.mix[rows], self.output[rows])
        result = getattr(room, self.kind)(self.streams[rows], *pending, *self.parameters)
        return result if isinstance(result, tuple) else (result,)


SITES = [
    ("ihc_enter", ""),
    ("ihc_enter", "ihc"),
    ("mhc_enter", ""),
    ("mhc_enter", "mhc"),
    ("collapse", "ihc"),
    ("collapse", "mhc"),
]


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize(("kind", "before"), SITES)
def test_hyper_connections_are_the_references(kind: str, before: str, shape: tuple[int, int, int]) -> None:
    site = Site(kind, before, shape)
    with use(kind, "cpu"):
        got = site.run(streams_room)
    for wanted, actual in zip(site.run(streams_reference), got, strict=True):
        assert wanted.shape == actual.shape
        if wanted.numel():
            assert relative_rms(wanted, actual) < 1e-6


@pytest.mark.parametrize("kind", ["ihc_enter", "mhc_enter"])
def test_streams_that_share_memory_are_read_right(kind: str) -> None:
    site = Site(kind, "", (3, 4, 64))
    site.streams = site.streams[:, :1].expand(-1, 4, -1)  # how the embedding enters the first layer
    with use(kind, "cpu"):
        got = site.run(streams_room)
    assert all(
        relative_rms(wanted, actual) < 1e-6 for wanted, actual in zip(site.run(streams_reference), got, strict=True)
    )


@pytest.mark.parametrize(("kind", "before"), SITES)
def test_threads_and_neighbours_do_not_change_a_bit(kind: str, before: str) -> None:
    site = Site(kind, before, (600, 4, 256))
    threads, results = torch.get_num_threads(), []
    try:
        with use(kind, "cpu"):
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                results.append(site.run(streams_room))
            alone = site.run(streams_room, slice(7, 8))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert all(torch.equal(a[7:8], b) for a, b in zip(results[0], alone, strict=True))


def test_threads_do_not_change_a_bit_of_a_norm() -> None:
    x, added = torch.randn(2, 3000, 300, generator=torch.Generator().manual_seed(2))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append((norm_room.rms_norm(x, None, 1e-5), *norm_room.add_rms_norm(x, added, x[0], 1e-5)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["rotate_interleaved", "rotate_half_split"])
@pytest.mark.parametrize("shape", [(1, 8, 32), (5, 1, 2), (300, 3, 64), (0, 2, 8)])
def test_rotation_of_strided_heads_is_the_references(name: str, shape: tuple[int, int, int]) -> None:
    tokens, heads, width = shape
    generator = torch.Generator().manual_seed(tokens)
    whole = torch.randn(tokens, heads + 2, width + 5, generator=generator)
    angles = torch.randn(tokens, width // 2, generator=generator) * 100
    rotation = torch.polar(torch.ones_like(angles), angles)
    cases = [
        (whole[:, 1 : heads + 1, 2 : width + 2], 0, rotation),
        (whole[:, :heads, :width].contiguous(), 0, rotation.conj()),
        (whole[:, :heads], 0, rotation),
        (whole[:, 2:, 1:], 3, rotation.conj()),
        (whole[:, :heads].transpose(1, 2).contiguous().transpose(1, 2), 5, rotation),
        (whole[:, :heads], 2, torch.stack([rotation, rotation], dim=-1)[..., 1]),
    ]
    for x, first, turn in cases:
        with use(name, "cpu"):
            got = getattr(rope_room, name)(x, turn, first)
        wanted = getattr(rope_reference, name)(x, turn, first)
        assert got.shape == wanted.shape and got.is_contiguous()
        assert torch.equal(got[..., :first], x[..., :first])
        assert torch.equal(got[..., first + width :], x[..., first + width :])
        if x.numel():
            assert relative_rms(wanted[..., first : first + width], got[..., first : first + width]) < 1e-6


@pytest.mark.parametrize("scoring", ["sigmoid", "sqrt_softplus"])
@pytest.mark.parametrize(("tokens", "experts", "k"), [(1, 16, 4), (7, 256, 8), (40, 9, 9), (3, 5, 1), (0, 8, 2)])
def test_routes_are_the_references(scoring: str, tokens: int, experts: int, k: int) -> None:
    generator = torch.Generator().manual_seed(tokens + experts)
    logits = torch.randn(tokens, experts, generator=generator) * 8
    for bias in (torch.randn(experts, generator=generator) * 0.1, torch.randn(tokens, experts, generator=generator)):
        with use("route", "cpu"):
            ids, weights = router_room.route(logits, bias, k, scoring, 2.5)
        wanted_ids, wanted = router_reference.route(logits, bias, k, scoring, 2.5)
        assert torch.equal(ids.sort(-1).values, wanted_ids.sort(-1).values)
        if tokens:
            assert relative_rms(wanted.sort(-1).values, weights.sort(-1).values) < 1e-5


def test_equal_scores_choose_the_lowest_experts() -> None:
    with use("route", "cpu"):
        ids, weights = router_room.route(torch.zeros(2, 12), torch.zeros(12), 5, "sigmoid", 1.0)
    assert ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert weights.sum(-1).allclose(torch.ones(2))


def test_grouped_routers_keep_to_the_reference() -> None:
    generator = torch.Generator().manual_seed(3)
    logits, bias = torch.randn(6, 16, generator=generator), torch.randn(16, generator=generator)
    with use("route", "cpu"):
        got = router_room.route(logits, bias, 4, "sigmoid", 2.5, 4, 2)
    wanted = router_reference.route(logits, bias, 4, "sigmoid", 2.5, 4, 2)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
