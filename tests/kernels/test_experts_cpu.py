"""Experts multiplied from packed MXFP4 by compiled C, on every instruction set this processor has."""

from __future__ import annotations

import shutil

import pytest
import torch

from kernels import native
from kernels.choose import KernelUnavailable, Unsuitable, use
from kernels.experts import MxFp4Matrix, PackedExpert, cpu, packed_experts, reference
from kernels.formats import dequantize_mxfp4
from tests.support.compare import relative_rms

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
INSTRUCTION_SETS = [(), ("-mno-avx512f",), ("-mno-avx512f", "-mno-avx2", "-mno-avx")]


def matrix(random: torch.Generator, *shape: int) -> MxFp4Matrix:
    codes = torch.randint(256, (*shape[:-1], shape[-1] // 2), generator=random, dtype=torch.uint8)
    return MxFp4Matrix(
        codes, torch.randint(115, 124, (*shape[:-1], shape[-1] // 32), generator=random, dtype=torch.uint8)
    )


@needs_compiler
@pytest.mark.parametrize("flags", INSTRUCTION_SETS)
@pytest.mark.parametrize(("rows", "columns", "tokens"), [(1, 32, 1), (7, 96, 2), (67, 64, 5), (130, 1056, 9)])
def test_matvec_against_float64(flags: tuple[str, ...], rows: int, columns: int, tokens: int) -> None:
    random = torch.Generator().manual_seed(rows)
    codes, scale = matrix(random, rows, columns)
    x = torch.randn(tokens, columns, generator=random)
    code = cpu._library(*flags)
    expected = x.double() @ dequantize_mxfp4(codes, scale).double().T
    assert relative_rms(cpu._matvec(code, codes, scale, x), expected) < 5e-6
    assert torch.equal(cpu._decode(code, codes, scale), dequantize_mxfp4(codes, scale))


@needs_compiler
@pytest.mark.parametrize("flags", INSTRUCTION_SETS)
def test_every_scale_byte_decodes_as_the_reference(flags: tuple[str, ...]) -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    scale = torch.arange(256, dtype=torch.uint8).unsqueeze(1).repeat(1, 16)
    decoded = cpu._decode(cpu._library(*flags), codes, scale)
    expected = dequantize_mxfp4(codes, scale)
    assert torch.equal(decoded.isnan(), expected.isnan())
    assert torch.equal(decoded.nan_to_num(), expected.nan_to_num())


def experts(random: torch.Generator, count: int, width: int, hidden: int) -> list[PackedExpert]:
    return [
        PackedExpert(matrix(random, width, hidden), matrix(random, width, hidden), matrix(random, hidden, width))
        for _ in range(count)
    ]


@needs_compiler
@pytest.mark.parametrize("tokens", [0, 1, 2, 7, 120])
@pytest.mark.parametrize("limit", [None, 0.7])
def test_experts_against_the_reference(tokens: int, limit: float | None) -> None:
    random = torch.Generator().manual_seed(tokens)
    bank = experts(random, 6, 96, 160)
    x = torch.randn(tokens, 160, generator=random)
    ids = torch.empty(tokens, 3, dtype=torch.int64)
    for row in ids:
        row.copy_(torch.randperm(6, generator=random)[:3])
    weights = torch.rand(tokens, 3, generator=random)
    with use("packed_experts", "cpu"):
        actual = packed_experts(x, ids, weights, bank.__getitem__, limit)
    expected = reference.packed_experts(x.double(), ids, weights.double(), bank.__getitem__, limit) if tokens else x
    assert actual.shape == x.shape
    assert actual.dtype == x.dtype
    if tokens:
        assert relative_rms(actual, expected) < 1e-6


@needs_compiler
def test_stacked_experts_repeat_bitwise() -> None:
    random = torch.Generator().manual_seed(1)
    gate_up, down = matrix(random, 4, 128, 64), matrix(random, 4, 64, 64)
    x, ids = torch.randn(3, 64, generator=random).bfloat16(), torch.tensor([[0, 3], [3, 1], [2, 2]])
    weights = torch.rand(3, 2, generator=random)
    first = cpu.mxfp4_experts(x, ids, weights, gate_up, down, 1.0)
    assert relative_rms(first, reference.mxfp4_experts(x.float(), ids, weights, gate_up, down, 1.0)) < 5e-3
    assert all(torch.equal(first, cpu.mxfp4_experts(x, ids, weights, gate_up, down, 1.0)) for _ in range(20))


def test_without_a_compiler_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    monkeypatch.setattr(native, "_loaded", {})
    cpu._library.cache_clear()
    random = torch.Generator().manual_seed(2)
    bank = experts(random, 2, 32, 32)
    x, ids, weights = torch.randn(1, 32), torch.tensor([[1]]), torch.ones(1, 1)
    packed_experts.force(None)
    try:
        expected = reference.packed_experts(x, ids, weights, bank.__getitem__, None)
        assert torch.equal(packed_experts(x, ids, weights, bank.__getitem__, None), expected)
        with use("packed_experts", "cpu"), pytest.raises(KernelUnavailable, match="no C compiler"):
            packed_experts(x, ids, weights, bank.__getitem__, None)
    finally:
        cpu._library.cache_clear()
        packed_experts.force(None)


@needs_compiler
def test_a_directory_others_can_write_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(native._Place, "directory", tmp_path)
    monkeypatch.setattr(native, "_loaded", {})
    tmp_path.chmod(0o777)
    with pytest.raises(Unsuitable, match="written to by other users"):
        native.library(cpu._SOURCE)
    tmp_path.chmod(0o700)
    native._loaded.clear()
    native.library(cpu._SOURCE)
    assert {path.suffix for path in tmp_path.iterdir()} == {".so"}
