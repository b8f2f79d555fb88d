"""The compressor against the definition, entry by entry and channel by channel in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.compressor import compress_windows
from tests.support import compare


def _by_definition(rows: Tensor, slots: Tensor, bias: Tensor, overlap: bool) -> Tensor:
    rows, bias = rows.double(), bias.double()
    ratio, channels = bias.shape
    width = channels // 2 if overlap else channels
    out = torch.zeros(len(slots), width, dtype=torch.float64)
    for m, window in enumerate(slots.tolist()):
        for d in range(width):
            weights, values = [], []
            for j, row in enumerate(window):
                if row < 0:
                    continue
                column = d + (width if overlap and j >= ratio else 0)
                weights.append(torch.exp(rows[row, 1, column] + bias[j % ratio, column]))
                values.append(rows[row, 0, column])
            total = torch.stack(weights)
            out[m, d] = (total * torch.stack(values)).sum() / total.sum()
    return out


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("ratio", "width", "windows"), [(4, 6, 3), (8, 5, 1), (3, 1, 5)])
def test_entries_are_the_definition(ratio: int, width: int, windows: int, overlap: bool) -> None:
    g = torch.Generator().manual_seed(ratio * width)
    channels, length = (2 if overlap else 1) * width, (2 if overlap else 1) * ratio
    rows = torch.randn(40, 2, channels, generator=g)
    slots = torch.randint(0, 40, (windows, length), generator=g)
    if overlap:
        slots[0, :ratio] = -1  # the first window of a conversation has none before it
    bias = torch.randn(ratio, channels, generator=g)
    expected = _by_definition(rows, slots, bias, overlap)
    compare.assert_close(compress_windows(rows, slots, bias, overlap).double(), expected, tolerance=1e-6)


def test_no_window_gives_no_entry() -> None:
    none = torch.empty(0, 8, dtype=torch.int64)
    assert compress_windows(torch.randn(3, 2, 10), none, torch.zeros(4, 10), True).shape == (0, 5)


def test_large_gates_do_not_overflow() -> None:
    rows = torch.stack([torch.tensor([[1.0], [300.0]]), torch.tensor([[2.0], [-300.0]])])
    assert compress_windows(rows, torch.tensor([[0, 1]]), torch.zeros(2, 1), False).tolist() == [[1.0]]
