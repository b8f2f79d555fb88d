"""Mixing of the parallel residual streams around each block."""

from kernels.hyper_connection.reference import collapse, ihc_gates, ihc_update, mhc_gates, mhc_update

__all__ = ["collapse", "ihc_gates", "ihc_update", "mhc_gates", "mhc_update"]
