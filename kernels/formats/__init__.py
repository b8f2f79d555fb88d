"""Number formats of checkpoints: e2m1, e4m3, e8m0 and the block layouts built from them."""

from kernels.formats.reference import (
    dequantize_fp8,
    dequantize_mxfp4,
    e8m0_to_float32,
    unpack_e2m1,
)

__all__ = ["dequantize_fp8", "dequantize_mxfp4", "e8m0_to_float32", "unpack_e2m1"]
