"""Dispatch: an automatic choice is made and logged once; an explicit choice that cannot run is an error, never another kernel."""

from __future__ import annotations

import logging
import sys
from types import FrameType

import pytest
import torch

from kernels import choose
from kernels.choose import Case, Implementation, KernelUnavailable, Operator


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setattr(choose, "OPERATORS", {})
    module = __name__
    return Operator(
        "doubled",
        lambda x: Case(x.device.type, x.dtype),
        Implementation("triton", "kernels.no_such_room", "twice"),
        Implementation("reference", module, "twice"),
    )


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_falls_back_and_logs_the_reason_once(doubled: Operator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kernels.choose")
    for _ in range(3):
        assert doubled(torch.ones(1)).item() == 2
    assert len(caplog.records) == 1
    assert "doubled for cpu torch.float32: reference" in caplog.text
    assert "kernels.no_such_room cannot be imported" in caplog.text


def test_an_explicit_choice_that_cannot_run_raises(doubled: Operator) -> None:
    with choose.use("doubled", "triton"), pytest.raises(KernelUnavailable, match="triton was chosen, but"):
        doubled(torch.ones(1))
    with pytest.raises(KernelUnavailable, match="has no cpu implementation"):
        doubled.force("cpu")
    assert doubled(torch.ones(1)).item() == 2


def test_a_choice_once_made_costs_one_look(doubled: Operator) -> None:
    """Every Python call of an operator is counted; tests/bench/cpu_demo.py measures what they cost."""
    x, called = torch.ones(1), []
    doubled(x)

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        doubled(x)
    finally:
        sys.setprofile(None)
    # The operator, its key, the making of the Case, and the implementation.
    assert called[0] == "__call__" and called[-1] == "twice" and len(called) <= 4, called


def test_table_names_every_operator_and_what_can_run() -> None:
    table = {row.name: row for row in choose.operator_table()}
    assert {"mxfp4_experts", "packed_experts", "index_select", "sparse_attention"} <= table.keys()
    assert all(row.reference == "" for row in table.values())
