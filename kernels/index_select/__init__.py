"""The lightning indexer's choice: which cached entries each query reads."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.index_select.reference import index_scores, top_positions

__all__ = ["index_scores", "index_select", "top_positions"]

FEW_QUERIES = 8  # up to here a GPU spreads one query over many programs


def _key(queries: Tensor, weights: Tensor, keys: Tensor, *_: object) -> Case:
    return Case(keys.device.type, keys.dtype, "few queries" if queries.shape[0] <= FEW_QUERIES else "many queries")


index_select = operator("index_select", _key, __name__, "triton", "cpu")
