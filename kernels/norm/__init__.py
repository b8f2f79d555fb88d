"""Root-mean-square and layer normalisation."""

from kernels.norm.reference import layer_norm, rms_norm

__all__ = ["layer_norm", "rms_norm"]
