"""The maker's quantizer and torch's own float types against the vectors of ``formats``."""

from __future__ import annotations

import pytest
import torch

from tests.support import formats
from tests.support.oracle import quantize


def test_code_tables_agree_with_torch() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(every.view(torch.float8_e4m3fn).double().nan_to_num(1e9), formats.e4m3_table().nan_to_num(1e9))
    assert torch.equal(quantize.e8m0_to_float(every).double().nan_to_num(1e9), formats.e8m0_table().nan_to_num(1e9))


def test_every_byte_splits_into_its_two_nibbles() -> None:
    packed, values = formats.nibble_order()
    scale = torch.full((16, 1), 127, dtype=torch.uint8)
    decoded = quantize.dequantize_mxfp4(packed.reshape(16, 16), scale)
    assert torch.equal(decoded.double(), values.reshape(16, 32))


def test_mxfp4_decodes_exactly_and_encodes_back_to_the_same_value() -> None:
    vector = formats.mxfp4_matrix(7, 96)
    decoded = quantize.dequantize_mxfp4(vector.code, vector.scale)
    assert torch.equal(decoded.double(), vector.value)
    again = quantize.dequantize_mxfp4(*quantize.quantize_mxfp4(decoded))
    assert torch.equal(again, decoded)


def test_gpt_oss_blocks_are_the_same_numbers_in_another_shape() -> None:
    vector = formats.gpt_oss_blocks(2, 3, 2)
    packed = vector.code.view(torch.int8).reshape(6, 32)
    decoded = quantize.dequantize_mxfp4(packed, vector.scale.reshape(6, 2))
    assert torch.equal(decoded.double(), vector.value.reshape(6, 64))


@pytest.mark.parametrize(("shape", "block"), [((160, 130), (128, 128)), ((33, 64), (32, 32)), ((5, 96), (1, 32))])
@pytest.mark.parametrize("e8m0", [True, False])
def test_fp8_blocks_decode_with_cut_borders(shape: tuple[int, int], block: tuple[int, int], e8m0: bool) -> None:
    vector = formats.fp8_blocks(*shape, block, e8m0=e8m0)
    decoded = quantize.dequantize_fp8(vector.code.view(torch.float8_e4m3fn), vector.scale, block)
    torch.testing.assert_close(decoded, vector.value.float(), rtol=0 if e8m0 else 1e-7, atol=0)


def test_torch_rounds_to_e4m3_like_the_definition() -> None:
    inputs, codes = formats.e4m3_rounding()
    assert torch.equal(inputs.to(torch.float8_e4m3fn).view(torch.uint8), codes)


@pytest.mark.parametrize("kind", list(formats.LOSSLESS_LOG2_RATIO))
def test_one_e4m3_scale_holds_groups_up_to_the_stated_ratio(kind: str) -> None:
    rows = formats.mxfp4_as_e4m3(kind)
    assert rows.lossless.tolist() == [r <= formats.LOSSLESS_LOG2_RATIO[kind] for r in range(17)]
    assert torch.equal(quantize.dequantize_mxfp4(rows.packed, rows.scale).double(), rows.value)
