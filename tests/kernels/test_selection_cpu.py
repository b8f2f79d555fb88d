"""Index selection and sparse attention in compiled C against the references, and the references against float64."""

from __future__ import annotations

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.choose import use
from kernels.index_select import cpu as select_cpu
from kernels.index_select import index_select, reference, top_positions
from kernels.sparse_attention import cpu as attention_cpu
from kernels.sparse_attention import reference as attention_reference
from kernels.sparse_attention import sparse_attention
from tests.kernels.cases import AttentionCase, SelectionCase, attentions, selections
from tests.support.compare import relative_rms

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
SCORES = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, float("-inf"), float("nan"), 3e38])
INSTRUCTION_SETS = [(), ("-mno-avx512f",), ("-mno-avx512f", "-mno-avx2", "-mno-avx")]


@needs_compiler
@pytest.mark.parametrize("flags", INSTRUCTION_SETS)
@pytest.mark.parametrize(("name", "case"), list(selections()))
def test_selection_is_the_references(name: str, case: SelectionCase, flags: tuple[str, ...]) -> None:
    assert torch.equal(select_cpu._select(select_cpu._library(*flags), *case), reference.index_select(*case)), name


@needs_compiler
@pytest.mark.parametrize(("name", "case"), list(selections(torch.bfloat16)))
def test_selection_over_bfloat16_keys(name: str, case: SelectionCase) -> None:
    with use("index_select", "cpu"):
        assert torch.equal(index_select(*case), reference.index_select(*case)), name


@needs_compiler
@pytest.mark.parametrize(("name", "case"), list(selections()))
def test_selection_of_many_queries(name: str, case: SelectionCase) -> None:
    queries, weights, keys, table, sequence, visible, k = case
    times = -(-20 // max(len(queries), 1))
    many = (
        queries.repeat(times, 1, 1), weights.repeat(times, 1), keys, table, sequence.repeat(times),
        visible.repeat(times), k,
    )  # fmt: skip
    with use("index_select", "cpu"):
        assert torch.equal(index_select(*many), reference.index_select(*many)), name


@needs_compiler
@given(
    st.lists(st.lists(SCORES, min_size=40, max_size=40), min_size=1, max_size=4), st.integers(1, 41), st.integers(0, 40)
)
@settings(max_examples=200, deadline=None)
def test_top_positions_are_the_references(scores: list[list[float]], k: int, visible: int) -> None:
    case = torch.tensor(scores), torch.full((len(scores),), visible), k
    assert torch.equal(select_cpu._top(select_cpu._library(), *case), top_positions(*case))


@needs_compiler
def test_top_positions_of_long_rows_with_many_threads() -> None:
    random = torch.Generator().manual_seed(1)
    scores = torch.randn(100, 5000, generator=random)
    scores[::3] = scores[::3].round()  # many ties
    scores[1] = 0.25
    seen = torch.randint(0, 5001, (100,), generator=random)
    for k in (1, 511, 2048, 5000):
        assert torch.equal(select_cpu._top(select_cpu._library(), scores, seen, k), top_positions(scores, seen, k))


@needs_compiler
@pytest.mark.parametrize("flags", INSTRUCTION_SETS)
@pytest.mark.parametrize(("name", "case"), list(attentions()))
def test_attention_is_the_references(name: str, case: AttentionCase, flags: tuple[str, ...]) -> None:
    actual = attention_cpu._attend(attention_cpu._library(*flags), *case)
    expected = attention_reference.sparse_attention(*case)
    assert actual.isfinite().all(), name
    assert (actual.double() - expected).norm() <= 2e-6 * expected.double().norm(), name


@needs_compiler
def test_attention_over_bfloat16_rows_repeats_bitwise() -> None:
    for name, case in attentions(torch.bfloat16):
        with use("sparse_attention", "cpu"):
            first = sparse_attention(*case)
            assert all(torch.equal(first, sparse_attention(*case)) for _ in range(5)), name
        expected = attention_reference.sparse_attention(*case)
        assert (first.double() - expected).norm() <= 5e-3 * expected.double().norm(), name


@given(
    st.lists(st.lists(SCORES, min_size=12, max_size=12), min_size=1, max_size=3), st.integers(1, 12), st.integers(0, 12)
)
@settings(max_examples=100, deadline=None)
def test_reference_top_positions_by_sorting(scores: list[list[float]], k: int, visible: int) -> None:
    tensor = torch.tensor(scores)
    actual = top_positions(tensor, torch.full((len(scores),), visible), k)
    for row, picked in zip(scores, actual.tolist(), strict=True):
        clean = [float("-inf") if value != value else value for value in row[:visible]]  # noqa: PLR0124 - NaN
        best = sorted(sorted(range(visible), key=lambda p: -clean[p])[:k])
        assert picked[: len(best)] == best
        assert all(p == -1 for p in picked[len(best) :])


def test_reference_attention_by_its_formula() -> None:
    for name, (q, r, sources, scale, sinks) in attentions():
        out = torch.zeros(q.shape, dtype=torch.float64)
        for n in range(q.shape[0]):
            for h in range(q.shape[1]):
                logits, values = [], []
                for latent, rope, slots in sources:
                    for slot in slots[n].tolist():
                        if slot >= 0:
                            logit = q[n, h].double() @ latent[slot].double()
                            if rope is not None and r is not None:
                                logit += r[n, h].double() @ rope[slot].double()
                            logits.append(logit * scale)
                            values.append(latent[slot].double())
                if not logits:
                    continue
                weight = torch.stack(logits).exp()
                total = weight.sum() + (0 if sinks is None else sinks[h].double().exp())
                out[n, h] = (weight.unsqueeze(1) * torch.stack(values)).sum(0) / total
        actual = attention_reference.sparse_attention(q, r, sources, scale, sinks)
        assert (actual - out).norm() <= 1e-6 * out.norm() + 1e-30, name
        assert out.norm() == 0 or relative_rms(actual, out) < 1e-6
