"""The compact cache (FP8 rows) against the exact one: same conversation, close numbers, a fraction of the bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.api import Engine, EngineSettings, Message
from engine.cache.cache import KvCache
from engine.cache.layout import declare_cache
from engine.model.batch import Chunk, Trace, build_batch
from engine.runtime import Runtime, open_runtime
from kernels.cache_rows import write_latents, write_rows
from tests.engine.test_state_resume import reply, same
from tests.support.compare import cosine, relative_rms
from tests.support.oracle import OracleCase

# Sizes the packed rows are made for.
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128}
SIZES = {
    "hy_v4": LATENT,
    "deepseek_v32": LATENT,
    "glm_moe_dsa": LATENT,
    "deepseek_v4": {"head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128},
}


def big_case(oracle_case: Callable[..., OracleCase], family: str) -> OracleCase:
    return oracle_case(family, overrides=SIZES[family])


def first_layer(runtime: Runtime, ids: Tensor, chunk: int) -> Tensor:
    """Residual streams behind the first layer, where no router has chosen by score yet."""
    trace, sequence = Trace(), runtime.cache.open()
    assert sequence is not None and runtime.cache.reserve(sequence, len(ids))
    for part in ids.split(chunk):
        positions = torch.arange(sequence.length, sequence.length + len(part)).expand(3, -1)
        runtime.model.transformer(build_batch([Chunk(sequence, part, positions)], runtime.cache, trace))
        sequence.length += len(part)
    runtime.cache.close(sequence)
    return torch.cat(trace.layer_out[0])


@pytest.mark.parametrize("family", SIZES)
def test_compact_rows_give_close_numbers_and_chunks_change_nothing(
    family: str, oracle_case: Callable[..., OracleCase]
) -> None:
    case = big_case(oracle_case, family)
    exact, compact = (
        open_runtime(case.path, EngineSettings(device="cpu", cache_tokens=512, cache_layout=layout))
        for layout in ("exact", "compact")
    )
    ids = case.input_ids[:32]  # nothing is cut off yet, so rounding cannot change what is selected
    # e4m3 keeps 3 bits behind the leading one, 2.6 % root mean square, and the first tokens have little to average over.
    wanted, got = first_layer(exact, ids, 32), first_layer(compact, ids, 32)
    assert 1e-6 < relative_rms(wanted, got) < 4e-2 and cosine(wanted, got) > 0.999
    # A value on the border between two codes may fall to the other side when the last bit of a product differs.
    assert relative_rms(got, first_layer(compact, ids, 7)) < 1e-2
    small, large = (r.described.layout.bytes_per_token for r in (compact, exact))
    assert small < 0.33 * large


@pytest.mark.parametrize("family", SIZES)
def test_compact_state_resumes_bit_for_bit(
    family: str, oracle_case: Callable[..., OracleCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = big_case(oracle_case, family)

    def opened(place: Path | None, layout: str = "compact") -> Engine:
        return Engine.open(
            case.path,
            EngineSettings(device="cpu", state_dir=place, cache_tokens=512, threads=1, cache_layout=layout),  # type: ignore[arg-type]
        )

    messages = [Message("user", "zqxj" * 30)]
    never, saving = opened(None), opened(tmp_path)
    first = reply(never, messages, "a", monkeypatch)
    same(reply(saving, messages, "a", monkeypatch), first)
    messages += [Message("assistant", first.text), Message("user", "and then?")]
    wanted = reply(never, messages, "a", monkeypatch)
    never.close()
    saving.close()
    other = opened(tmp_path, "exact")
    assert reply(other, messages, "b", monkeypatch).restored == 0  # another layout is another state
    other.close()
    again = opened(tmp_path)
    got = reply(again, messages, "a", monkeypatch)
    assert got.restored == wanted.reused > 120
    same(got, wanted)
    again.close()


def test_bytes_per_token_of_published_layouts() -> None:
    from engine.families import find_family
    from tests.published import load

    def compact_bytes(name: str) -> float:
        config = load(name)
        return declare_cache(find_family(config).parse(config), torch.bfloat16, compact=True).bytes_per_token

    assert compact_bytes("deepseek_v32") == 61 * (656 + 132)
    assert compact_bytes("glm_5_2") == compact_bytes("hy4") == 78 * 656 + 21 * 132
    assert compact_bytes("deepseek_v4_flash") == 21 * (584 + 132) / 4 + 20 * 584 / 128


def test_packed_rows_move_between_pages_unchanged() -> None:
    from engine.families import find_family
    from tests.published import load

    config = load("deepseek_v32")
    layout = declare_cache(find_family(config).parse(config), torch.bfloat16, compact=True)
    cache = KvCache(layout, 8, 2, torch.device("cpu"))
    first, second = cache.open(), cache.open()
    assert first is not None and second is not None
    for sequence in (first, second):
        assert cache.reserve(sequence, 150)
    generator = torch.Generator().manual_seed(0)
    slots = torch.tensor([first.pages[t // 64] * 64 + t % 64 for t in range(150)])
    rotation, weight = torch.ones(150, 32, dtype=torch.complex64), torch.ones(512)
    for layer in range(3):
        x = torch.randn(150, 576, generator=generator)
        write_latents(*cache.latent_pools(layer), slots, x, weight, 1e-6, rotation, True)
        write_rows(cache.pool(layer, "index"), slots, x[:, :128], weight[:128], None, 1e-6, rotation, 0, True)
    first.length = 150
    saved = cache.export_rows(first, 0, 150)
    assert cache.accepts(0, 150, saved)
    cache.import_rows(second, 150, [(0, saved)])
    again = cache.export_rows(second, 0, 150)
    assert all(torch.equal(saved[name], again[name]) for name in saved)
    assert not torch.equal(saved["0.index"], saved["1.index"])
