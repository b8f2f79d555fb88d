"""MXFP4 to FP8 conversion and few-token experts in Triton against the references."""

from __future__ import annotations

import pytest
import torch

from kernels.experts import Fp8Matrix, MxFp4Matrix, reference
from kernels.formats import dequantize_fp8, dequantize_mxfp4
from tests.support.compare import cosine, relative_rms

kernels = pytest.importorskip("kernels.experts.triton")


def matrix(random: torch.Generator, shape: tuple[int, int, int], low: int, high: int) -> MxFp4Matrix:
    experts, rows, columns = shape
    codes = torch.randint(256, (experts, rows, columns // 2), generator=random, dtype=torch.uint8)
    scale = torch.randint(low, high + 1, (experts, rows, columns // 32), generator=random, dtype=torch.uint8)
    return MxFp4Matrix(codes, scale)


def moved(source: MxFp4Matrix, device: str) -> MxFp4Matrix:
    return MxFp4Matrix(source.codes.to(device), source.scale.to(device))


def workspace(shape: tuple[int, int, int], device: str) -> Fp8Matrix:
    """Poisoned with NaN codes and a scale that cannot come out."""
    codes = torch.full(shape, 0xFF, dtype=torch.uint8, device=device).view(torch.float8_e4m3fn)
    return Fp8Matrix(codes, torch.full((*shape[:2], shape[2] // 128), 255, dtype=torch.uint8, device=device))


def converted(source: MxFp4Matrix, shape: tuple[int, int, int], device: str) -> tuple[Fp8Matrix, torch.Tensor]:
    space = workspace(shape, device)
    wide = kernels.convert_mxfp4_to_fp8(moved(source, device), *space)
    return Fp8Matrix(space.codes.cpu(), space.scale.cpu()), wide.cpu()


@pytest.mark.parametrize(
    ("low", "high"),
    [(113, 126), (120, 120), (0, 9), (0, 254), (100, 116), (241, 255), (255, 255), (110, 125)],
)
@pytest.mark.parametrize("shape", [(1, 1, 128), (2, 33, 256), (1, 66, 128)])
def test_conversion_is_bit_equal(low: int, high: int, shape: tuple[int, int, int], device: str) -> None:
    source = matrix(torch.Generator().manual_seed(low), shape, low, high)
    expected = workspace(shape, "cpu")
    wide_expected = reference.convert_mxfp4_to_fp8(source, *expected)
    actual, wide = converted(source, shape, device)
    assert torch.equal(actual.scale, expected.scale)
    assert torch.equal(wide, wide_expected)
    assert torch.equal(actual.codes.view(torch.uint8), expected.codes.view(torch.uint8))


def test_blocks_not_flagged_hold_the_same_numbers(device: str) -> None:
    source = matrix(torch.Generator().manual_seed(7), (1, 64, 512), 112, 127)
    actual, wide = converted(source, (1, 64, 512), device)
    blocks = dequantize_fp8(actual.codes, actual.scale, (1, 128)).unflatten(-1, (-1, 128))
    same = (blocks == dequantize_mxfp4(*source).unflatten(-1, (-1, 128))).all(-1)
    assert torch.equal(same, ~wide)
    assert 0 < int(wide.sum()) < wide.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "limit"), [(1, None), (2, 1.5)])
def test_few_tokens_against_float64(tokens: int, limit: float | None, dtype: torch.dtype, device: str) -> None:
    random = torch.Generator().manual_seed(tokens)
    experts, hidden, width, slots = 4, 160, 32, 2
    gate_up, down = (
        matrix(random, (experts, 2 * width, hidden), 117, 122),
        matrix(random, (experts, hidden, width), 117, 122),
    )
    x = torch.randn(tokens, hidden, generator=random).to(dtype)
    ids = torch.stack([torch.randperm(experts, generator=random)[:slots] for _ in range(tokens)])
    weights = torch.rand(tokens, slots, generator=random)
    expected = reference.mxfp4_experts(x.double(), ids, weights.double(), gate_up, down, limit)
    args = (x.to(device), ids.to(device), weights.to(device), moved(gate_up, device), moved(down, device), limit)
    actual = kernels.mxfp4_experts(*args).cpu()
    assert relative_rms(actual, expected) < (2e-3 if dtype == torch.float32 else 5e-3)
    assert cosine(actual, expected) > 0.9999
    assert all(torch.equal(actual, kernels.mxfp4_experts(*args).cpu()) for _ in range(20 if device == "cuda" else 1))


@pytest.mark.parametrize("size", [0.05, 1e3])
def test_few_tokens_with_unusual_magnitudes(size: float, device: str) -> None:
    random = torch.Generator().manual_seed(3)
    gate_up, down = matrix(random, (2, 64, 96), 117, 121), matrix(random, (2, 96, 32), 117, 122)
    x = torch.randn(1, 96, generator=random) * size
    ids, weights = torch.tensor([[1, 0]]), torch.tensor([[0.3, 1.2]])
    expected = reference.mxfp4_experts(x.double(), ids, weights.double(), gate_up, down, None)
    actual = kernels.mxfp4_experts(
        x.to(device), ids.to(device), weights.to(device), moved(gate_up, device), moved(down, device), None
    ).cpu()
    assert actual.isfinite().all()
    assert relative_rms(actual, expected) < 5e-3


@pytest.mark.parametrize(("tokens", "limit"), [(1, None), (37, 2.0), (90, None)])
def test_grouped_products_from_the_workspace(tokens: int, limit: float | None, device: str) -> None:
    """Activations are rounded to e4m3 twice; the weights are exact."""
    random = torch.Generator().manual_seed(tokens)
    experts, hidden, width, slots = 4, 256, 128, 2
    spaces = []
    for shape in ((experts, 2 * width, hidden), (experts, hidden, width)):
        source = matrix(random, shape, 117, 122)
        space, wide = converted(source, shape, device)
        assert not wide.any()
        spaces.append(space)
    x = torch.randn(tokens, hidden, generator=random)
    ids = torch.stack([torch.randperm(experts - 1, generator=random)[:slots] for _ in range(tokens)])  # one stays idle
    weights = torch.rand(tokens, slots, generator=random)
    expected = reference.fp8_experts(x.double(), ids, weights.double(), *spaces, limit)
    on_device = [Fp8Matrix(space.codes.to(device), space.scale.to(device)) for space in spaces]
    args = (x.to(device), ids.to(device), weights.to(device), *on_device, limit)
    actual = kernels.fp8_experts(*args).cpu()
    assert relative_rms(actual, expected) < 4.5e-2  # e4m3 has 3 bits of mantissa: 2.6e-2 per rounding
    assert cosine(actual, expected) > 0.999
    kept = torch.float32 if device == "cpu" else torch.bfloat16  # what the kernel keeps between the products
    rounded = fake_quantized(x.double(), ids, weights.double(), spaces, limit, kept)
    assert relative_rms(actual, rounded) < 1e-2
    assert all(torch.equal(actual, kernels.fp8_experts(*args).cpu()) for _ in range(20 if device == "cuda" else 1))


def fake_quantized(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    spaces: list[Fp8Matrix],
    limit: float | None,
    kept: torch.dtype,
) -> torch.Tensor:
    """The same products in float64 with activations rounded as the kernel rounds them."""

    def rounded(values: torch.Tensor) -> torch.Tensor:
        blocks = values.float().unflatten(-1, (-1, 128))
        scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448
        return ((blocks / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2).double()

    gate_up, down = (dequantize_fp8(s.codes, s.scale, (1, 128)).double() for s in spaces)
    out = torch.zeros_like(x)
    for n, row in enumerate(ids.tolist()):
        for j, e in enumerate(row):
            hidden = reference.swiglu(rounded(x[n : n + 1]) @ gate_up[e].T, limit)
            out[n] += weights[n, j] * (rounded(hidden.to(kept)) @ down[e].T)[0]
    return out


@pytest.mark.gpu
def test_conversion_of_more_than_two_to_the_31_values() -> None:
    shape = (260, 2048, 4096 + 128)
    random = torch.Generator("cuda").manual_seed(0)
    codes = torch.randint(256, (*shape[:2], shape[2] // 2), generator=random, dtype=torch.uint8, device="cuda")
    scale = torch.randint(113, 127, (*shape[:2], shape[2] // 32), generator=random, dtype=torch.uint8, device="cuda")
    space = workspace(shape, "cuda")
    kernels.convert_mxfp4_to_fp8(MxFp4Matrix(codes, scale), *space)
    part = slice(-1, None)
    last = workspace((1, *shape[1:]), "cuda")
    reference.convert_mxfp4_to_fp8(MxFp4Matrix(codes[part], scale[part]), *last)
    assert torch.equal(space.codes[part].view(torch.uint8), last.codes.view(torch.uint8))
    assert torch.equal(space.scale[part], last.scale)
