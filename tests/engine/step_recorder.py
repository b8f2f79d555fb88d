"""Stands in for a CUDA graph on the CPU: a step is recorded as calls on fixed memory, and repeated without its Python.

As on a GPU, whatever the step took from the host - numbers, shapes, tensors made on the way - is repeated as it was. A
call of one of our operators counts as one kernel launch. What would stop a recording on a GPU raises here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.model import experts
from engine.model.step_graphs import Step
from kernels.choose import Operator

# Reading a number on the host, shapes that follow from data, and sending the host's numbers to the device.
_STOPS = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "unique", "lift_fresh")


class Stopped(Exception):
    """The step does what cannot be recorded."""


class Recorder(TorchDispatchMode):
    """Recorded calls with their results; a `Record` for StepGraphs. `inside` counts operators that are running."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []
        self.inside = self.recordings = self.repeats = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.inside:
            return func(*args, **(kwargs or {}))
        masks = func.overloadpacket.__name__.startswith("index") and any(
            isinstance(x, Tensor) and x.dtype == torch.bool for x in tree_leaves(args[1:2])
        )
        if masks or func.overloadpacket.__name__ in _STOPS:
            raise Stopped(str(func))
        return self.call(func, args, kwargs or {})

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def __call__(self, step: Step) -> Step:
        with pytest.MonkeyPatch.context() as patch, self:
            for name in ("tolist", "numpy", "cpu", "item"):
                patch.setattr(Tensor, name, _stop(self, name, getattr(Tensor, name)))
            patch.setattr(Operator, "__call__", _recorded(self, Operator.__call__))
            for name in ("dense_experts", "grouped_experts"):  # a GPU whose steps are recorded has an operator here
                patch.setattr(experts, name, _recorded(self, getattr(experts, name)))
            logits = step()
        calls, self.calls = self.calls, []
        self.recordings += 1

        def repeat() -> Tensor:
            self.repeats += 1
            _repeat(calls)
            return logits

        return repeat


def _stop(recorder: Recorder, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def stopped(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not recorder.inside:
            raise Stopped(name)
        return original(tensor, *args, **kwargs)

    return stopped


def _recorded(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    def launch(*arguments: Any) -> Any:
        recorder.inside += 1
        try:
            return original(*arguments)
        finally:
            recorder.inside -= 1

    return lambda *arguments: launch(*arguments) if recorder.inside else recorder.call(launch, arguments, {})


@torch.inference_mode()
def _repeat(calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]]) -> None:
    """Every call again; what it gives goes to the memory where its first result lies."""
    for func, args, kwargs, result in calls:
        inputs = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
            if isinstance(old, Tensor) and old.untyped_storage().data_ptr() not in inputs:
                assert old.shape == new.shape, f"{func} gives {list(new.shape)}, at recording {list(old.shape)}"
                old.copy_(new)


@contextmanager
def selections_of_fixed_width() -> Iterator[None]:
    """Index selections as wide as a GPU gives them: as many columns as the page table has entries, at most k."""
    from kernels.index_select import index_select

    original = Operator.__call__

    def call(operator: Operator, *arguments: Any) -> Any:
        chosen = original(operator, *arguments)
        if operator is not index_select:
            return chosen
        queries, _, keys, table, _, _, k = arguments
        page = keys.shape[1] // (queries.shape[2] + 4) if keys.dtype == torch.uint8 else keys.shape[1]
        return F.pad(chosen, (0, min(k, table.shape[1] * page) - chosen.shape[1]), value=-1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "__call__", call)
        yield
