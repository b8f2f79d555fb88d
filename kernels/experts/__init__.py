"""Mixture-of-experts multiplication, from decoded, FP8 or packed MXFP4 weights."""

from kernels.experts.reference import (
    Fp8Matrix,
    MxFp4Matrix,
    convert_mxfp4_to_fp8,
    dense_experts,
    fp8_experts,
    grouped_experts,
    mxfp4_experts,
)

__all__ = [
    "Fp8Matrix",
    "MxFp4Matrix",
    "convert_mxfp4_to_fp8",
    "dense_experts",
    "fp8_experts",
    "grouped_experts",
    "mxfp4_experts",
]
