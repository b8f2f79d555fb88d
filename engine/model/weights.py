"""How blocks ask for their parameters. A block's constructor is the one declaration of what it needs:
run against `DeclaredWeights` it lists names and shapes, run against the loader it gets tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

from engine.model.experts import ExpertBank
from engine.model.spec import Moe

Kind = Literal["vector", "linear", "matrix", "table", "expert"]


@dataclass(frozen=True)
class Parameter:
    """One logical parameter. Vectors are float32, matrices of the compute dtype, tables integers; see `Weights` for linear."""

    name: str
    shape: tuple[int, ...]
    kind: Kind


class Weights(Protocol):
    """Access to parameters below one prefix. Shapes are checked by whoever answers."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type the model computes in."""

    def scope(self, name: str) -> Weights:
        """The same source, with names below `name`."""

    def vector(self, name: str, *shape: int) -> Tensor:
        """Small float32 tensor: norm weights, biases, gates, and matrices whose result must be float32."""

    def linear(self, name: str, *shape: int) -> Tensor:
        """Weight [out, in] of a product by `kernels.linear` in the compute dtype, or narrower where that loses nothing."""

    def matrix(self, name: str, *shape: int) -> Tensor:
        """Large weight [out, in, ...] in the compute dtype."""

    def table(self, name: str, *shape: int) -> Tensor:
        """Integer lookup table, int64."""

    def experts(self, moe: Moe, hidden: int) -> ExpertBank:
        """The routed experts of one layer: `experts.{e}.gate`, `.up` [I, H] and `.down` [H, I]."""


class Undecided:
    """Stands for a tensor while a model is only declared: every operation on it gives it back.

    torch's own meta tensors would do, but their first use costs seconds of imports.
    """

    device = torch.device("cpu")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Undecided:
        return cls()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self

    def __getitem__(self, key: Any) -> Undecided:
        return self

    def split(self, sizes: list[int], dim: int = 0) -> list[Undecided]:
        return [self] * len(sizes)


class DeclaredWeights:
    """Records every request and answers with stand-ins."""

    dtype = torch.float32

    def __init__(self, declared: dict[str, Parameter] | None = None, prefix: str = "") -> None:
        self.declared: dict[str, Parameter] = {} if declared is None else declared
        self._prefix = prefix

    def scope(self, name: str) -> DeclaredWeights:
        return DeclaredWeights(self.declared, f"{self._prefix}{name}.")

    def _declare(self, name: str, shape: tuple[int, ...], kind: Kind) -> Tensor:
        full = self._prefix + name
        assert full not in self.declared, f"{full} declared twice"
        self.declared[full] = Parameter(full, shape, kind)
        return cast(Tensor, Undecided())

    def vector(self, name: str, *shape: int) -> Tensor:
        return self._declare(name, shape, "vector")

    def linear(self, name: str, *shape: int) -> Tensor:
        return self._declare(name, shape, "linear")

    def matrix(self, name: str, *shape: int) -> Tensor:
        return self._declare(name, shape, "matrix")

    def table(self, name: str, *shape: int) -> Tensor:
        return self._declare(name, shape, "table")

    def experts(self, moe: Moe, hidden: int) -> ExpertBank:
        for e in range(moe.experts):
            for part, shape in expert_shapes(moe, hidden).items():
                self._declare(f"experts.{e}.{part}", shape, "expert")
        return cast(ExpertBank, Undecided())


def expert_shapes(moe: Moe, hidden: int) -> dict[str, tuple[int, int]]:
    """Matrix shapes of one expert."""
    return {"gate": (moe.width, hidden), "up": (moe.width, hidden), "down": (hidden, moe.width)}
