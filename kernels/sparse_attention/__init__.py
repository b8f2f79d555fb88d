"""Attention over selected cache rows."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.sparse_attention.reference import Rows

__all__ = ["Rows", "sparse_attention"]

FEW_QUERIES = 16  # up to here a GPU splits the rows of a query over programs
SMALL = 1 << 23  # heads * width * rows of one query up to which the CPU code beats torch's gather and product


def _key(q_latent: Tensor, q_rope: Tensor | None, sources: tuple[Rows, ...], *_: object) -> Case:
    device, dtype = q_latent.device.type, sources[0].latent.dtype
    if device == "cpu":
        _, heads, width = q_latent.shape
        small = heads * width * sum(rows.slots.shape[1] for rows in sources) <= SMALL
        return Case(device, dtype, "small" if small else "large")
    return Case(device, dtype, "few queries" if q_latent.shape[0] <= FEW_QUERIES else "many queries")


sparse_attention = operator("sparse_attention", _key, __name__, "triton", "cpu")
