"""Attention over selected cache rows."""

from torch import Tensor

from kernels.choose import Case, operator
from kernels.sparse_attention.reference import Rows

__all__ = ["Rows", "sparse_attention"]

FEW_QUERIES = 64  # up to here keys are split over programs


def _key(q_latent: Tensor, q_rope: Tensor | None, sources: tuple[Rows, ...], *_: object) -> Case:
    few = q_latent.shape[0] <= FEW_QUERIES
    return Case(q_latent.device.type, sources[0].latent.dtype, "few queries" if few else "many queries")


sparse_attention = operator("sparse_attention", _key, __name__)
