"""The lightning indexer's choice: which cached entries each query reads."""

from kernels.index_select.reference import index_select, top_positions

__all__ = ["index_select", "top_positions"]
