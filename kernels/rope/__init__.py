"""Rotary position embedding."""

from kernels.rope.reference import rotate_half_split, rotate_interleaved

__all__ = ["rotate_half_split", "rotate_interleaved"]
