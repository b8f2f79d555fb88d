"""Attention over selected cache rows."""

from kernels.sparse_attention.reference import Rows, sparse_attention

__all__ = ["Rows", "sparse_attention"]
