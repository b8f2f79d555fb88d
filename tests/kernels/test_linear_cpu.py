"""Dense products by compiled C against the reference: odd sizes, strides, element types, independence of rows."""

from __future__ import annotations

import threading

import pytest
import torch

from kernels.choose import Case, KernelUnavailable, can_run, use
from kernels.linear import FEW_TOKENS, gated_mlp, headwise_linear, linear, reference

pytestmark = pytest.mark.skipif(not can_run("linear", "cpu"), reason="no C compiler")
TYPES = (torch.float32, torch.bfloat16)


def close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return got.shape == wanted.shape and float((got - wanted).norm()) <= 2e-6 * float(wanted.norm())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 5, 16), (3, 4, 31), (4, 130, 384), (9, 7, 1000), (32, 64, 48)])
def test_linear(dtype: torch.dtype, sizes: tuple[int, int, int]):
    tokens, outputs, inputs = sizes
    random = torch.Generator().manual_seed(sum(sizes))
    x = torch.randn(tokens, inputs + 3, generator=random)[:, 1 : inputs + 1]  # unaligned, with a stride
    weight = torch.randn(outputs, inputs, generator=random).to(dtype)
    with use("linear", "cpu"):
        got = linear(x, weight)
        assert close(got, reference.linear(x, weight))
        for n in range(tokens):
            assert torch.equal(linear(x[n : n + 1], weight)[0], got[n])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 8, 32, 128), (3, 2, 5, 70), (5, 3, 7, 33), (32, 2, 16, 200)])
def test_headwise_linear(dtype: torch.dtype, sizes: tuple[int, int, int, int]):
    tokens, heads, inputs, outputs = sizes
    random = torch.Generator().manual_seed(sum(sizes))
    x = torch.randn(tokens, heads, inputs + 2, generator=random)[..., :inputs]
    weight = torch.randn(heads, inputs, outputs, generator=random).to(dtype)
    with use("headwise_linear", "cpu"):
        got = headwise_linear(x, weight)
        assert got.is_contiguous()
        assert close(got, reference.headwise_linear(x, weight))
        for n in range(tokens):
            assert torch.equal(headwise_linear(x[n : n + 1], weight)[0], got[n])


@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 48, 128), (3, 37, 9), (6, 33, 70), (32, 20, 6)])
def test_gated_mlp(dtype: torch.dtype, sizes: tuple[int, int, int], limit: float | None):
    tokens, hidden, inner = sizes
    random = torch.Generator().manual_seed(sum(sizes))
    x = torch.randn(tokens, hidden + 3, generator=random)[:, 1 : hidden + 1]
    gate_up = torch.randn(2 * inner, hidden, generator=random).to(dtype)
    down = torch.randn(hidden, inner, generator=random).to(dtype)
    with use("gated_mlp", "cpu"):
        got = gated_mlp(x, gate_up, down, limit)
        assert close(got, reference.gated_mlp(x, gate_up, down, limit))
        for n in range(tokens):
            assert torch.equal(gated_mlp(x[n : n + 1], gate_up, down, limit)[0], got[n])


def test_gated_mlp_with_weights_of_two_kinds_and_without_numbers():
    x = torch.tensor([[1.0, float("nan")], [1.0, 1e30]])
    gate_up, down = torch.ones(2, 2), torch.ones(2, 1, dtype=torch.bfloat16)
    with use("gated_mlp", "cpu"):
        assert torch.equal(
            gated_mlp(x, gate_up, down, None).isnan(), reference.gated_mlp(x, gate_up, down, None).isnan()
        )
        got, wanted = gated_mlp(x, gate_up, down.float(), 3.0), reference.gated_mlp(x, gate_up, down.float(), 3.0)
    assert got[0].isnan().all() and torch.allclose(got[1], wanted[1])


def test_bfloat16_weights_lose_nothing():
    weight = torch.arange(0, 65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    weight = weight[weight.float().isfinite()].unsqueeze(1)
    with use("linear", "cpu"):
        assert torch.equal(linear(torch.ones(1, 1), weight)[0], weight[:, 0].float())


def test_threads_do_not_change_a_result():
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 700, generator=random), torch.randn(1501, 700, generator=random)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with use("linear", "cpu"):
                results.append(linear(x, weight))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_no_tokens():
    with use("linear", "cpu"), use("headwise_linear", "cpu"):
        assert linear(torch.zeros(0, 8), torch.zeros(5, 8)).shape == (0, 5)
        assert headwise_linear(torch.zeros(0, 2, 8), torch.zeros(2, 8, 5)).shape == (0, 2, 5)


@pytest.mark.parametrize("sizes", [(33, 5, 8), (40, 300, 700), (64, 7, 1000), (33, 3, 1001), (33, 9, 99)])
def test_many_tokens_block_by_block(sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kernels.linear.cpu._WIDENED", 1000)
    tokens, outputs, inputs = sizes
    random = torch.Generator().manual_seed(sum(sizes))
    x, weight = torch.randn(tokens, inputs, generator=random), torch.randn(outputs, inputs, generator=random).bfloat16()
    with use("linear", "cpu"):
        assert close(linear(x, weight), reference.linear(x, weight))
    gate_up, down = weight[: outputs // 2 * 2] * inputs**-0.5, torch.randn(9, outputs // 2, generator=random).bfloat16()
    with use("gated_mlp", "cpu"):
        assert close(gated_mlp(x, gate_up, down, 1.0), reference.gated_mlp(x, gate_up, down, 1.0))


def test_many_tokens_inside_and_outside_of_inference_mode(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kernels.linear.cpu._local", threading.local())
    x, weight = torch.ones(40, 8), torch.ones(5, 8, dtype=torch.bfloat16)
    with use("linear", "cpu"):
        with torch.inference_mode():
            first = linear(x, weight)
        assert torch.equal(linear(x, weight), first)


def test_many_tokens_with_wide_weights_are_left_to_torch():
    with use("linear", "cpu"), pytest.raises(KernelUnavailable, match="torch is faster"):
        linear(torch.zeros(FEW_TOKENS + 1, 8), torch.zeros(5, 8))


def test_other_cases_are_refused():
    from kernels.choose import OPERATORS

    for case in (
        Case("cuda", torch.float32, (torch.float32, "few")),
        Case("cpu", torch.bfloat16, (torch.bfloat16, "few")),
        Case("cpu", torch.float32, (torch.float16, "few")),
    ):
        with use("linear", "cpu"), pytest.raises(KernelUnavailable):
            OPERATORS["linear"]._choose(case)
