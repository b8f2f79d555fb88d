"""Writing cache rows and packing index queries: every implementation against the plain-torch twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.cache_rows import reference
from kernels.choose import can_run
from tests.kernels.cases import random_generator, to
from tests.support.compare import relative_rms

triton = pytest.importorskip("kernels.cache_rows.triton")
KINDS = ["cpu", "triton"]
TOKENS, ROWS = 9, 24


@pytest.fixture(autouse=True)
def rounding_of_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """To nearest, ties to even; Triton's interpreter truncates to bfloat16 and rounds ties to e4m3 upwards."""
    from triton.runtime import interpreter

    convert = interpreter._convert_float
    narrow = {"bf16": (torch.bfloat16, torch.int16), "fp8e4nv": (torch.float8_e4m3fn, torch.uint8)}

    def rounded(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source.name != "fp32" or target.name not in narrow:
            return convert(values, source, target, rounding)
        dtype, bits = narrow[target.name]
        return torch.from_numpy(values.copy()).to(dtype).view(bits).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", rounded)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "cpu" and not can_run("write_rows", "cpu"):
        pytest.skip("no C compiler on this machine")
    return str(request.param)


@pytest.fixture
def place(kind: str, device: str) -> str:
    return "cpu" if kind == "cpu" else device


def operation(kind: str, name: str) -> Callable[..., object]:
    if kind == "triton":
        return getattr(triton, name)  # type: ignore[no-any-return]
    from kernels.cache_rows import cpu

    return getattr(cpu, name)  # type: ignore[no-any-return]


def inputs(seed: int, width: int, turned: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rows that are a part of wider ones, weight, bias, rotation and slots, one of them to be skipped."""
    random = random_generator(seed)
    wide = torch.randn(TOKENS, width + 30, generator=random) * 10 ** torch.randn(TOKENS, 1, generator=random)
    wide[3] = 0
    angles = torch.randn(TOKENS, turned // 2, generator=random) * 100
    slots = torch.randperm(ROWS, generator=random)[:TOKENS]
    slots[4] = -1
    weight, bias = torch.randn(width, generator=random), torch.randn(width, generator=random)
    return wide[:, 7 : 7 + width], weight, bias, torch.polar(torch.ones_like(angles), angles), slots


def written(pools: list[Tensor], write: Callable[..., object], place: str, *arguments: object) -> list[Tensor]:
    """Copies of the pools after `write`; rows that no slot names must be left alone."""
    pools = [pool.clone().to(place) for pool in pools]
    write(*pools, *to(arguments, place))
    return [pool.cpu() for pool in pools]


def without_rope_pool(write: Callable[..., object]) -> Callable[..., object]:
    return lambda pool, *rest: write(pool, None, *rest)


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (
        torch.full(shape, 0xAA, dtype=dtype) if dtype == torch.uint8 else torch.full(shape, float("nan"), dtype=dtype)
    )


def same_rows(got: Tensor, wanted: Tensor, slots: Tensor, limit: float = 1e-6) -> None:
    """Named rows within `limit` of the reference, each by its own norm; all others untouched."""
    got, wanted = got.flatten(0, -2), wanted.flatten(0, -2)
    named = slots[slots >= 0]
    assert got[named].isfinite().all()
    assert bool(((got[named] - wanted[named]).norm(dim=1) <= limit * wanted[named].norm(dim=1)).all())
    others = torch.ones(len(got), dtype=torch.bool)
    others[named] = False
    assert got[others].isnan().all()


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("latent", "turned"), [(512, 64), (128, 32), (40, 8), (33, 6)])
def test_latents_are_the_references(kind: str, place: str, latent: int, turned: int, interleaved: bool) -> None:
    x, weight, _, rotation, slots = inputs(latent, latent + turned, turned)
    rest = (slots, x, weight[:latent], 1e-5, rotation, interleaved)
    pools = [poisoned(3, ROWS // 3, latent), poisoned(3, ROWS // 3, turned)]
    got = written(pools, operation(kind, "write_latents"), place, *rest)
    for mine, other in zip(got, written(pools, reference.write_latents, "cpu", *rest), strict=True):
        same_rows(mine, other, slots)
    halves = [pool.bfloat16() for pool in pools]
    for half, full in zip(written(halves, operation(kind, "write_latents"), place, *rest), got, strict=True):
        assert torch.equal(half[~half.isnan()], full.bfloat16()[~full.isnan()])


@pytest.mark.parametrize("interleaved", [True, False])
def test_packed_latents_are_the_packing_of_plain_ones(kind: str, place: str, interleaved: bool) -> None:
    x, weight, _, rotation, slots = inputs(0, 576, 64)
    rest = (slots, x, weight[:512], 1e-5, rotation, interleaved)
    write = operation(kind, "write_latents")
    latent, rope = written([poisoned(ROWS, 512), poisoned(ROWS, 64)], write, place, *rest)
    wanted = poisoned(ROWS, 656, dtype=torch.uint8)
    named = slots[slots >= 0]
    wanted[named] = reference.pack_latent_rows(latent[named], rope[named])
    pool = poisoned(3, ROWS // 3, 656, dtype=torch.uint8)
    (packed,) = written([pool], without_rope_pool(write), place, *rest)
    assert torch.equal(packed.flatten(0, 1), wanted)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(
    ("width", "turned", "first"), [(128, 64, 0), (128, 64, 64), (512, 64, 448), (48, 8, 0), (37, 6, 31), (64, 64, 0)]
)
def test_rows_are_the_references(
    kind: str, place: str, width: int, turned: int, first: int, interleaved: bool, centred: bool
) -> None:
    x, weight, bias, rotation, slots = inputs(width, width, turned)
    rest = (slots, x, weight, bias if centred else None, 1e-5, rotation, first, interleaved)
    pool = poisoned(3, ROWS // 3, width)
    (got,) = written([pool], operation(kind, "write_rows"), place, *rest)
    same_rows(got, written([pool], reference.write_rows, "cpu", *rest)[0], slots, 2e-6)
    (half,) = written([pool.bfloat16()], operation(kind, "write_rows"), place, *rest)
    assert torch.equal(half[~half.isnan()], got.bfloat16()[~got.isnan()])


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("width", "turned", "first"), [(512, 64, 448), (128, 64, 0), (128, 32, 96)])
def test_packed_rows_are_the_packing_of_plain_ones(
    kind: str, place: str, width: int, turned: int, first: int, centred: bool
) -> None:
    x, weight, bias, rotation, slots = inputs(1, width, turned)
    rest = (slots, x, weight, bias if centred else None, 1e-5, rotation, first, True)
    write = operation(kind, "write_rows")
    (plain,) = written([poisoned(ROWS, width)], write, place, *rest)
    named = slots[slots >= 0]
    if width == 512:
        wanted = poisoned(ROWS, 584, dtype=torch.uint8)
        wanted[named] = reference.pack_entry_rows(plain[named])
        (packed,) = written([wanted.new_full((3, 8, 584), 0xAA)], write, place, *rest)
        packed = packed.flatten(0, 1)
    else:
        wanted = poisoned(3, 8 * (width + 4), dtype=torch.uint8)
        reference.write_index_rows(wanted, named, reference.pack_index_keys(plain[named]))
        (packed,) = written([torch.full_like(wanted, 0xAA)], write, place, *rest)
    assert torch.equal(packed, wanted)


def test_packing_at_the_edges_of_a_scale(kind: str, place: str) -> None:
    """Ones have norm one, so the weight itself is packed: largest magnitudes at and beside 448, ties, subnormal codes."""
    edges = torch.tensor([[1.75, 1.75 + 2**-23], [1.75 - 2**-23, -1.75], [1.0, 2.0 - 2**-23], [1e-4 * 2**10, 3e-8]])
    inner = torch.tensor([1.0625, 1.1875, -1.0625, 0.0, 2.0**-9, 2.0**-10, 1.5 * 2.0**-9, 2.5 * 2.0**-9, 2.0**-14])
    write = operation(kind, "write_latents")
    for exponent in (0, -10, 30):
        weight = torch.zeros(4, 2, 64)
        weight[..., 0], weight[..., 1:10] = edges, inner * edges.abs().unsqueeze(-1) / 2
        rest = (torch.tensor([0]), torch.ones(1, 576), weight.flatten() * 2.0**exponent, 0.0)
        turn = (torch.ones(1, 32, dtype=torch.complex64), True)
        plain, rope = written([poisoned(1, 512), poisoned(1, 64)], write, place, *rest, *turn)
        assert place == "cuda" or torch.equal(plain[0], rest[2])  # a GPU's root of 1 may be off by its last bit
        (packed,) = written([poisoned(1, 656, dtype=torch.uint8)], without_rope_pool(write), place, *rest, *turn)
        assert torch.equal(packed, reference.pack_latent_rows(plain, rope))
    weight = torch.cat([edges.flatten(), inner]).unfold(0, 8, 1).repeat_interleave(64, dim=1)
    for one in weight:
        turn = (torch.ones(1, 32, dtype=torch.complex64), 448, True)
        rest = (torch.tensor([0]), torch.ones(1, 512), one, None, 0.0, *turn)
        (plain,) = written([poisoned(1, 512)], operation(kind, "write_rows"), place, *rest)
        (packed,) = written([poisoned(1, 584, dtype=torch.uint8)], operation(kind, "write_rows"), place, *rest)
        assert torch.equal(packed, reference.pack_entry_rows(plain))


def test_a_row_does_not_depend_on_the_rows_beside_it(kind: str, place: str) -> None:
    x, weight, bias, rotation, slots = inputs(2, 96, 16)
    x = x.contiguous()  # every row as well aligned as the first
    write = operation(kind, "write_rows")
    (together,) = written([poisoned(ROWS, 96)], write, place, slots, x, weight, bias, 1e-5, rotation, 4, True)
    for n in range(TOKENS):
        one = slice(n, n + 1)
        rest = (slots[one], x[one], weight, bias, 1e-5, rotation[one], 4, True)
        if slots[n] >= 0:
            assert torch.equal(written([poisoned(ROWS, 96)], write, place, *rest)[0][slots[n]], together[slots[n]])


def test_many_rows_and_threads_change_nothing() -> None:
    cpu = pytest.importorskip("kernels.cache_rows.cpu")
    if not can_run("write_rows", "cpu"):
        pytest.skip("no C compiler on this machine")
    random = random_generator(3)
    x, rotation = torch.randn(700, 512, generator=random), torch.polar(torch.ones(700, 32), torch.rand(700, 32))
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            pool = torch.zeros(700, 584, dtype=torch.uint8)
            cpu.write_rows(pool, torch.arange(700), x, torch.ones(512), None, 1e-6, rotation, 448, True)
            results.append(pool)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results) and int(results[0].amax()) > 0


def test_no_rows_write_nothing(kind: str, place: str) -> None:
    x, weight, bias, rotation, slots = inputs(2, 96, 16)
    pool = poisoned(ROWS, 96)
    for count, listed in ((0, slots[:0]), (TOKENS, torch.full_like(slots, -1))):
        rest = (listed, x[:count], weight, bias, 1e-5, rotation[:count], 4, True)
        assert written([pool], operation(kind, "write_rows"), place, *rest)[0].isnan().all()


def test_rows_are_the_definition() -> None:
    """The plain-torch twin itself, written out in float64."""
    x, weight, bias, rotation, slots = inputs(5, 20, 6)
    slots = slots.clamp(min=0)
    for centred in (True, False):
        y = x.double()
        if centred:
            y = y - y.mean(1, keepdim=True)
        y = y / (y.square().mean(1, keepdim=True) + 1e-3).sqrt() * weight
        if centred:
            y = y + bias
        pairs = torch.view_as_complex(y[:, 10:16].contiguous().unflatten(1, (3, 2))) * rotation
        y[:, 10:16] = torch.view_as_real(pairs).flatten(1)
        rest = (slots, x, weight, bias if centred else None, 1e-3, rotation, 10, True)
        (got,) = written([poisoned(ROWS, 20)], reference.write_rows, "cpu", *rest)
        last = {int(slot): n for n, slot in enumerate(slots)}
        assert relative_rms(y[list(last.values())].float(), got[list(last)]) < 1e-6


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(
    ("heads", "width", "turned", "first"), [(64, 128, 64, 0), (5, 128, 64, 64), (3, 32, 8, 5), (1, 17, 6, 0)]
)
def test_packed_queries(heads: int, width: int, turned: int, first: int, interleaved: bool, device: str) -> None:
    random = random_generator(heads)
    x = (torch.randn(4, heads + 1, width + 3, generator=random) * 10 ** torch.randn(4, 1, 1, generator=random))[
        :, 1:, :width
    ]
    angles, weights = torch.randn(4, turned // 2, generator=random), torch.randn(4, heads, generator=random)
    arguments = (x, weights, torch.polar(torch.ones_like(angles), angles), first, interleaved)
    codes, scaled = triton.pack_queries(*to(arguments, device))
    wanted, wanted_scaled = reference.pack_queries(*arguments)
    assert codes.dtype == torch.float8_e4m3fn and codes.shape == x.shape
    values = codes.float().cpu() * (scaled.cpu() / weights).unsqueeze(-1)
    turn = reference.rotate_interleaved if interleaved else reference.rotate_half_split
    exact = turn(x, arguments[2], first)
    assert relative_rms(exact, values) < 0.04
    assert relative_rms(exact, wanted.float() * (wanted_scaled / weights).unsqueeze(-1)) < 0.04
    different = codes.cpu().view(torch.uint8) != wanted.view(torch.uint8)
    assert (
        float(different.float().mean()) < 0.01
    )  # a value rotated with another rounding, at the edge between two codes
    assert relative_rms(wanted_scaled, scaled.cpu()) < 1e-6
