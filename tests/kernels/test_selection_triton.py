"""Index selection in Triton: exactly the reference's positions, whatever the scores look like."""

from __future__ import annotations

import pytest
import torch

from kernels.index_select import reference
from tests.kernels.cases import SelectionCase, selection, selections, to

kernels = pytest.importorskip("kernels.index_select.triton")


def check(case: SelectionCase, device: str, name: str = "") -> torch.Tensor:
    """Run the kernel and compare with the reference on the same device-independent inputs."""
    actual = kernels.index_select(*to(case, device)).cpu()
    expected = reference.index_select(*case)
    assert torch.equal(actual[:, : expected.shape[1]], expected), name
    assert bool((actual[:, expected.shape[1] :] == -1).all()), name
    return actual


@pytest.mark.parametrize(("name", "case"), list(selections()))
def test_positions_are_the_references(name: str, case: SelectionCase, device: str) -> None:
    first = check(case, device, name)
    repeats = 20 if device == "cuda" else 1
    assert all(torch.equal(first, kernels.index_select(*to(case, device)).cpu()) for _ in range(repeats))


def test_a_growing_conversation_reuses_its_scratch(device: str) -> None:
    *_, keys, table, _, _, _ = selection(10, 2, 16, [800], 20, page=16)
    random = torch.Generator().manual_seed(0)
    q, w = torch.randn(1, 2, 16, generator=random), torch.randn(1, 2, generator=random)
    kernels._scratch.clear()
    for pages in (20, 33, 50):
        check((q, w, keys, table[:, :pages], torch.tensor([0]), torch.tensor([pages * 16 - 5]), 20), device)
    assert len(kernels._scratch) == 1


def test_many_queries_of_several_conversations(device: str) -> None:
    _, _, keys, table, _, _, _ = selection(6, 4, 16, [90, 70, 40], 10)
    random = torch.Generator().manual_seed(0)
    sequence = torch.arange(3).repeat_interleave(7)
    visible = torch.cat([torch.arange(84, 91), torch.arange(64, 71), torch.arange(5, 12)])
    q, w = torch.randn(21, 4, 16, generator=random), torch.randn(21, 4, generator=random)
    check((q, w, keys, table, sequence, visible, 10), device)


def test_many_queries_with_ties(device: str) -> None:
    _, _, keys, table, _, _, _ = selection(7, 2, 16, [200], 10)
    keys = keys[:, :1].expand_as(keys).contiguous()
    random = torch.Generator().manual_seed(0)
    q, w = torch.randn(11, 2, 16, generator=random), torch.randn(11, 2, generator=random)
    check((q, w, keys, table, torch.zeros(11, dtype=torch.int64), torch.arange(190, 201), 30), device)


def packed_case(case: SelectionCase) -> tuple[SelectionCase, SelectionCase]:
    """The case with FP8 queries and packed FP8 keys; and with the same numbers in float32."""
    queries, weights, keys, *rest = case
    pages, _, width = keys.shape
    scale = keys.abs().amax(-1) / 448
    codes = (keys / scale.unsqueeze(-1)).to(torch.float8_e4m3fn)
    pool = torch.cat(
        [codes.view(torch.uint8).reshape(pages, -1), scale.contiguous().view(torch.uint8).reshape(pages, -1)], 1
    )
    q = queries.clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(reference.unpack_index_keys(pool, width), codes.float() * scale.unsqueeze(-1))
    return (q, weights, pool, *rest), (q.float(), weights, codes.float() * scale.unsqueeze(-1), *rest)


@pytest.mark.parametrize("visible", [[203, 61], [40]])
def test_packed_keys_select_the_same_set(visible: list[int], device: str) -> None:
    packed, plain = packed_case(selection(8, 4, 32, visible, 12, page=16))
    actual = kernels.index_select(*to(packed, device)).cpu()
    expected = reference.index_select(*plain)
    for n, row in enumerate(expected):
        assert len(set(actual[n].tolist()) ^ set(row.tolist())) <= 2, "only a boundary tie may differ"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("context", "k"), [(5000, 512), (70000, 2048), (262144, 512)])
def test_grid_wide_selection(context: int, k: int, dtype: torch.dtype) -> None:
    """Whole numbers: every score is exact, so the positions are too; and they tie often."""
    case = selection(9, 64, 128, [context, context - 77], k, page=64)
    queries, keys = (t.mul(1.5).round().clamp(-3, 3).to(dtype).cuda() for t in (case[0], case[2]))
    weights = case[1].mul(2).round().cuda()
    args = (queries, weights, keys, *to(case[3:6], "cuda"), k)
    first = kernels.index_select(*args)
    assert torch.equal(first, reference.index_select(*args))
    assert all(torch.equal(first, kernels.index_select(*args)) for _ in range(20))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["zeros", "equal", "five", "close", "negative", "heavy"])
@pytest.mark.parametrize("queries", [1, 40])
def test_adversarial_scores_at_length(kind: str, queries: int) -> None:
    """Scores made directly: one head, width 16, query (1, 0, ...)."""
    count, context = queries, 131072
    random = torch.Generator("cuda").manual_seed(1)
    score = torch.rand(context, generator=random, device="cuda")
    score = {
        "zeros": torch.where(score < 0.01, score, 0.0),
        "equal": torch.ones_like(score),
        "five": (score * 5).ceil(),
        "close": 1 + score * 1e-5,
        "negative": -score,
        "heavy": score.pow(-3),
    }[kind]
    sign = -1.0 if kind == "negative" else 1.0
    keys = torch.zeros(context // 64, 64, 16, device="cuda")
    keys[..., 0] = score.abs().view(-1, 64)
    q = torch.zeros(count, 1, 16, device="cuda")
    q[..., 0] = 1
    visible = context - torch.arange(count, device="cuda")
    sequence = torch.zeros(count, dtype=torch.int64, device="cuda")
    weights = torch.full((count, 1), sign, device="cuda")
    args = (q, weights, keys, torch.arange(context // 64, device="cuda")[None], sequence, visible, 2048)
    first = kernels.index_select(*args)
    assert torch.equal(first, reference.index_select(*args))
    assert all(torch.equal(first, kernels.index_select(*args)) for _ in range(5))
