"""Gated activation of the feed-forward layers."""

from kernels.swiglu.reference import swiglu

__all__ = ["swiglu"]
