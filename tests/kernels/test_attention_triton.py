"""Sparse attention and packed cache rows in Triton against the references."""

from __future__ import annotations

import pytest
import torch

from kernels.cache_rows import reference as rows_reference
from kernels.sparse_attention import Rows, reference
from tests.kernels.cases import AttentionCase, attentions, listed, random_generator, to
from tests.kernels.variants import spy
from tests.support.compare import cosine, relative_rms

kernels = pytest.importorskip("kernels.sparse_attention.triton")
writers = pytest.importorskip("kernels.cache_rows.triton")


def off(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double().cpu() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30))


@pytest.mark.parametrize(("name", "case"), list(attentions()))
def test_exact_rows(name: str, case: AttentionCase, device: str) -> None:
    actual = kernels.sparse_attention(*to(case, device))
    expected = reference.sparse_attention(*case)
    assert actual.isfinite().all(), name
    assert off(actual, expected) < 3e-6, name


@pytest.mark.parametrize(("splits", "sinks"), [(2, True), (16, False), (17, True), (65, False)])
def test_splits_are_combined(splits: int, sinks: bool, device: str) -> None:
    """One tile per split; the last splits of a list are empty, and the list's length is no round number."""
    random = random_generator(splits)
    q, sink = torch.randn(1, 2, 16, generator=random), torch.randn(2, generator=random) if sinks else None
    width = splits * 16 - 3
    slots = listed(random, 1, width, 40, [width * 3 // 4])
    case = (q, None, (Rows(torch.randn(40, 16, generator=random), None, slots),), 0.5, sink)
    actual = kernels.sparse_attention(*to(case, device), kernels.Tiles(16, splits, 1, 4))
    assert off(actual, reference.sparse_attention(*case)) < 3e-6


@pytest.mark.parametrize("second", [0, 20])
def test_a_growing_list_compiles_next_to_nothing(second: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch, kernels, "_attention_kernel", "_combine_kernel", launch=False)
    monkeypatch.setattr(kernels, "multiprocessors", lambda device: 48)
    pool, q = torch.zeros(50, 16, device=device), torch.zeros(1, 2, 16, device=device)
    for count in range(1, 2100):
        lists = [torch.zeros(1, n, dtype=torch.int64, device=device) for n in (second, count) if n]
        kernels.sparse_attention(q, None, tuple(Rows(pool, None, slots) for slots in lists), 0.5, None)
    assert len([v for v in seen if v[0] == "_attention_kernel"]) <= 3, "whole, one tile per split, more"
    assert len([v for v in seen if v[0] == "_combine_kernel"]) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(8))
def test_bfloat16_rows(index: int) -> None:
    name, case = list(attentions(torch.bfloat16))[index]
    first = kernels.sparse_attention(*to(case, "cuda"))
    assert off(first, reference.sparse_attention(*case)) < 5e-3, name
    assert all(torch.equal(first, kernels.sparse_attention(*to(case, "cuda"))) for _ in range(20)), name


def packed(latent: torch.Tensor, rope: torch.Tensor | None) -> torch.Tensor:
    if rope is None:
        return rows_reference.pack_entry_rows(latent)
    return rows_reference.pack_latent_rows(latent, rope)


@pytest.mark.parametrize("rope", [64, 0])
@pytest.mark.parametrize("queries", [1, 3])
def test_packed_rows(rope: int, queries: int, device: str) -> None:
    """656 and 584 bytes; against the reference on the same packed rows, and on the rows before packing."""
    random = random_generator(rope)
    latent, keys = torch.randn(90, 512, generator=random), torch.randn(90, 64, generator=random) if rope else None
    pool = packed(latent, keys)
    used = ([70, 70, 5], [20, 3, 0])
    slots = [listed(random, queries, width, 90, count) for width, count in zip((70, 20), used, strict=True)]
    q = torch.randn(queries, 16, 512, generator=random)
    r = torch.randn(queries, 16, 64, generator=random) if rope else None
    sinks = torch.randn(16, generator=random)
    sources = tuple(Rows(pool, None, s) for s in slots)
    plain = tuple(Rows(latent, keys, s) for s in slots)
    scale = 0.06
    actual = kernels.sparse_attention(*to((q, r, sources, scale, sinks), device)).cpu()
    same = reference.sparse_attention(q, r, sources, scale, sinks)
    assert relative_rms(actual, same) < 5e-3
    unpacked = reference.sparse_attention(q, r, plain, scale, sinks)
    assert cosine(same, unpacked) > 0.999


def test_packing_keeps_values_within_e4m3_steps() -> None:
    random = random_generator(0)
    latent, rope = (
        torch.randn(20, 512, generator=random) * 10 ** torch.randn(20, 1, generator=random),
        torch.randn(20, 64, generator=random),
    )
    back, keys = rows_reference.unpack_latent_rows(rows_reference.pack_latent_rows(latent, rope))
    assert relative_rms(back, latent) < 0.04
    assert torch.equal(keys, rope.bfloat16().float())
    entry = rows_reference.unpack_entry_rows(rows_reference.pack_entry_rows(latent))
    assert relative_rms(entry, latent) < 0.04
    assert torch.equal(entry[:, 448:], latent[:, 448:].bfloat16().float())


@pytest.mark.gpu
def test_rows_far_beyond_two_to_the_31_bytes() -> None:
    rows = (1 << 31) // 656 + 1000
    pool = torch.zeros(rows, 656, dtype=torch.uint8, device="cuda")
    random = torch.Generator("cuda").manual_seed(0)
    x, weight = torch.randn(64, 576, generator=random, device="cuda"), torch.ones(512, device="cuda")
    slots = rows - 1 - torch.arange(64, device="cuda")
    rotation = torch.ones(64, 32, dtype=torch.complex64, device="cuda")
    writers.write_latents(pool, None, slots, x, weight, 1e-6, rotation, True)
    low = torch.zeros(64, 656, dtype=torch.uint8, device="cuda")
    writers.write_latents(low, None, torch.arange(64, device="cuda"), x, weight, 1e-6, rotation, True)
    assert torch.equal(pool[slots], low)
    q, r = torch.randn(1, 64, 512, device="cuda").bfloat16(), torch.randn(1, 64, 64, device="cuda").bfloat16()
    actual = kernels.sparse_attention(q, r, (Rows(pool, None, slots[None]),), 0.05, None)
    expected = reference.sparse_attention(
        q, r, (Rows(pool[slots], None, torch.arange(64, device="cuda")[None]),), 0.05, None
    )
    assert off(actual, expected.cpu()) < 2e-2
