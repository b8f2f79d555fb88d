"""Index selection in Triton: exactly the reference's positions, whatever the scores look like."""

from __future__ import annotations

from statistics import NormalDist

import pytest
import torch

from kernels.index_select import reference
from tests.kernels.cases import SelectionCase, selection, selections, to
from tests.kernels.variants import spy

triton = pytest.importorskip("triton")
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


@pytest.mark.parametrize("name", ["ordinary", "mostly zero", "negative", "all equal", "NaN keys"])
def test_a_guess_never_changes_the_positions(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_GUESS_FROM", 0)
    check(dict(selections())[name], device, name)


@pytest.mark.parametrize("factor", [1, 30])
def test_a_guess_that_is_too_high_is_noticed(factor: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times 30 the first entries, which the guess looks at, lie far above the others, and too few above the guess."""
    monkeypatch.setattr(kernels, "_GUESS_FROM", 0)
    queries, weights, keys, table, *rest = selection(12, 2, 16, [900], 150)
    keys[table[0, :32]] *= factor
    check((queries, weights.abs(), keys, table, *rest), device)


@triton.jit
def _deviations_kernel(share_ptr, out_ptr):
    at = triton.language.arange(0, 16)
    triton.language.store(out_ptr + at, kernels._deviations(triton.language.load(share_ptr + at)))


def test_deviations_are_those_of_the_normal_distribution(device: str) -> None:
    share = torch.logspace(-4, -0.01, 16, device=device)
    actual = torch.empty_like(share)
    _deviations_kernel[(1,)](share, actual)
    expected = [NormalDist().inv_cdf(1 - min(0.45, 3.5 * x + 0.002)) for x in share.tolist()]
    assert torch.allclose(actual.cpu(), torch.tensor(expected), atol=1e-3)


@pytest.mark.parametrize("queries", [2, 10])
def test_a_padded_page_table_changes_nothing(queries: int, device: str) -> None:
    """A table wider than any conversation, and rows nobody asks for; what lies behind the visible entries is never read."""
    case = selection(11, 2, 16, [75, 130, *[20] * (queries - 2)], 16)
    *before, table, sequence, visible, k = case
    wide = torch.full((queries + 3, 40), 1 << 40)
    wide[:queries, : table.shape[1]] = table
    for n, count in enumerate(visible.tolist()):
        wide[n, -(-count // 8) :] = 1 << 40
    assert torch.equal(check((*before, wide, sequence, visible, k), device)[:, :k], check(case, device)[:, :k])


def test_a_growing_conversation_compiles_next_to_nothing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one page to a million entries, for one query and several: the compact layout's keys."""
    seen = spy(monkeypatch, kernels, "_select_kernel", "_score_kernel", launch=False)
    monkeypatch.setattr(kernels, "interpreted", lambda: False)
    monkeypatch.setattr(kernels, "multiprocessors", lambda device: 132)
    monkeypatch.setattr(kernels, "_scratch", {})
    monkeypatch.setattr(kernels, "_resident", {})
    pool = torch.zeros(2, 64 * 132, dtype=torch.uint8, device=device)
    for count in (1, 2, 3, 5, 8, 9, 64):
        q = torch.zeros(count, 64, 128, device=device).to(torch.float8_e4m3fn)
        w, row = torch.zeros(count, 64, device=device), torch.zeros(count, dtype=torch.int64, device=device)
        for pages in (1, 2, 15, 16, 17, 100, 500, 513, 1024, 2048, 5000, 16384):
            table = torch.zeros(1, pages, dtype=torch.int64, device=device)
            kernels.index_select(q, w, pool, table, row, row, 2048)
    checked = [v for v in seen if v[0] == "_select_kernel" and ("launch_cooperative_grid", True) in v]
    assert len(checked) <= 5, "scans of 256 and 512 entries, one or several per program, two tiles"
    assert len(seen) <= 2 * 5 + 2 + 2, "with and without the check; one program per query; two spans of scoring"


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
