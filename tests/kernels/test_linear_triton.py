"""Products with FP8 weights in Triton against the reference: both kinds of scale, partial blocks, splits, wide ranges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.formats import dequantize_fp8
from kernels.linear import linear_fp8, reference
from tests.kernels.cases import random_generator
from tests.kernels.variants import spy
from tests.support.compare import relative_rms

kernels = pytest.importorskip("kernels.linear.triton")


def weights(
    outputs: int, inputs: int, block: tuple[int, int], kind: torch.dtype, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random codes and scales, the latter about 2^-9, unlike from block to block."""
    random = random_generator(seed)
    codes = (torch.randn(outputs, inputs, generator=random) * 100).to(torch.float8_e4m3fn)
    grid = -(-outputs // block[0]), -(-inputs // block[1])
    if kind == torch.float32:
        return codes, torch.rand(grid, generator=random) * 4e-3
    return codes, torch.randint(113, 122, grid, generator=random, dtype=torch.uint8).view(kind)


FORMS = [((128, 128), torch.float32), ((128, 128), torch.float8_e8m0fnu), ((1, 32), torch.uint8)]


@pytest.mark.parametrize(("block", "kind"), FORMS, ids=str)
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(1, 200, 256), (17, 64, 128), (3, 1, 1280)])
def test_few_tokens(
    block: tuple[int, int], kind: torch.dtype, tokens: int, outputs: int, inputs: int, device: str
) -> None:
    """Exact up to the order of float32 sums for activations that bfloat16 holds; three launches agree bit by bit."""
    codes, scales = weights(outputs, inputs, block, kind)
    x = torch.randn(tokens, inputs + 8, generator=random_generator(1)).bfloat16().float()[:, 8:]
    exact = (x.double() @ dequantize_fp8(codes, scales, block).double().T).float()
    assert relative_rms(reference.linear_fp8(x, codes, scales), exact) < 1e-6
    arguments = x.to(device), codes.to(device), scales.to(device)
    first = kernels.linear_fp8(*arguments)
    assert relative_rms(first.cpu(), exact) < 1e-6
    assert all(torch.equal(first, kernels.linear_fp8(*arguments)) for _ in range(2))
    assert not kernels._counters_of(first.device).any(), "left for the next launch"
    half = kernels.linear_fp8(arguments[0].bfloat16(), *arguments[1:])
    assert half.dtype == torch.bfloat16
    assert relative_rms(half.float().cpu(), exact) < 4e-3


def test_a_token_does_not_depend_on_its_neighbours(device: str) -> None:
    codes, scales = (t.to(device) for t in weights(70, 512, *FORMS[0]))
    x = torch.randn(20, 512, generator=random_generator(2)).to(device)
    together = kernels.linear_fp8(x, codes, scales)
    assert torch.equal(kernels.linear_fp8(x[7:8], codes, scales), together[7:8])


def test_activations_of_any_size(device: str) -> None:
    """Beyond what fp16 holds, far below it, a mixture of both, zero, and no number."""
    codes, scales = weights(64, 256, *FORMS[0])
    x = torch.randn(6, 256, generator=random_generator(3)).bfloat16().float()
    x = x * torch.tensor([1e25, 1e-25, 1.0, 0.0, 1.0, 1.0]).unsqueeze(1)
    x[2, ::2] *= 2.0**20
    x[4, 130], x[5, 5] = float("nan"), float("inf")
    actual = kernels.linear_fp8(x.bfloat16().float().to(device), codes.to(device), scales.to(device)).cpu()
    exact = x[:4].bfloat16().double() @ dequantize_fp8(codes, scales, (128, 128)).double().T
    for n in range(4):
        assert float((actual[n].double() - exact[n]).norm()) <= 1e-6 * float(exact[n].norm())
    assert not actual[4:].isfinite().any()


def rounded(x: Tensor) -> Tensor:
    """Activations as the products of many tokens see them."""
    blocks = x.unflatten(-1, (-1, 128))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448
    return ((blocks / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2)


@pytest.mark.parametrize(("block", "kind"), FORMS[:2], ids=str)
@pytest.mark.parametrize(("tokens", "outputs", "inputs"), [(150, 200, 256), (33, 65, 128)])
def test_many_tokens(
    block: tuple[int, int], kind: torch.dtype, tokens: int, outputs: int, inputs: int, device: str
) -> None:
    codes, scales = weights(outputs, inputs, block, kind)
    x = torch.randn(tokens, inputs, generator=random_generator(4))
    actual = kernels.linear_fp8(x.to(device), codes.to(device), scales.to(device)).cpu()
    assert relative_rms(actual, reference.linear_fp8(rounded(x), codes, scales)) < (2e-3 if device == "cuda" else 1e-5)
    assert relative_rms(actual, reference.linear_fp8(x, codes, scales)) < 0.05


def test_scales_that_fit_no_block_are_refused() -> None:
    codes = torch.zeros(130, 256).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=r"\[1, 2\] fit no block"):
        linear_fp8(torch.zeros(1, 256), codes, torch.zeros(1, 2))


def test_sizes_of_matrices_and_batches_compile_next_to_nothing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch, kernels, "_few_kernel", "_many_kernel", launch=False)
    monkeypatch.setattr(kernels, "quantize", lambda x: (x, x))
    monkeypatch.setattr(kernels, "multiprocessors", lambda device: 132)
    for outputs, inputs in ((128, 128), (576, 7168), (2112, 2048), (10000, 256)):
        scales = torch.zeros(-(-outputs // 128), inputs // 128, device=device)
        codes = torch.empty(outputs, inputs, dtype=torch.float8_e4m3fn, device=device)
        for tokens in (1, 2, 16, 17, 32, 33, 64, 1000):
            kernels.linear_fp8(torch.empty(tokens, inputs, device=device), codes, scales)
    assert len([v for v in seen if v[0] == "_few_kernel"]) <= 6, "16 or 32 tokens; split, one chunk per split or more"
    assert len([v for v in seen if v[0] == "_many_kernel"]) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 8, 32, 100])
@pytest.mark.parametrize(("outputs", "inputs"), [(2112, 7168), (7168, 16384), (24576, 1536), (576, 7168)])
def test_published_sizes(outputs: int, inputs: int, tokens: int) -> None:
    codes, scales = (t.cuda() for t in weights(outputs, inputs, *FORMS[0]))
    x = torch.randn(tokens, inputs, generator=random_generator(5)).bfloat16().cuda()
    exact = x.double() @ dequantize_fp8(codes, scales, (128, 128)).double().T
    first = kernels.linear_fp8(x, codes, scales)
    assert relative_rms(first.float().cpu(), exact.float().cpu()) < (4e-3 if tokens <= 32 else 0.05)
    assert all(torch.equal(first, kernels.linear_fp8(x, codes, scales)) for _ in range(20))
