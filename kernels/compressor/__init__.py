"""Weighted averages of neighbouring tokens: the compressed entries of DeepSeek-V4."""

from kernels.compressor.reference import compress_windows

__all__ = ["compress_windows"]
