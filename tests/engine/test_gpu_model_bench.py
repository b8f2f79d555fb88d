"""The GPU benchmark of whole models runs from end to end with tiny sizes, and its scaled numbers add up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.decode import SHORT
from tests.bench.gpu_model import measure
from tests.bench.product import Work
from tests.published import load

TINY: dict[str, dict[str, Any]] = {
    "deepseek_v4_flash": {
        "hidden_size": 128, "num_attention_heads": 2, "q_lora_rank": 64, "o_groups": 2, "o_lora_rank": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "vocab_size": 512,
        "index_n_heads": 2, "index_topk": 16,
    },
    "hy4_preview": {
        "hidden_size": 128, "num_attention_heads": 2, "q_lora_rank": 64, "qk_nope_head_dim": 32, "v_head_dim": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "vocab_size": 512,
        "intermediate_size": 256, "index_n_heads": 2, "index_topk": 64,
    },
}  # fmt: skip
KINDS = {
    "deepseek_v4_flash": {
        "window, hash": (2, 2),
        "selected, hash": (1, 1),
        "all, moe": (1, 20),
        "selected, moe": (1, 20),
    },
    "hy4_preview": {"own index, dense": (1, 1), "own index, moe": (1, 20), "shared index, moe": (1, 57)},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So many small products are slower on several threads, most of all when another program shares them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", TINY)
def test_everything_is_measured_and_scaled(name: str, tmp_path: Path) -> None:
    results: list[dict[str, Any]] = []

    def emit(**result: Any) -> None:
        results.append(result)

    work = Work(context=132, prompt=104, chunk=100, batches=(1, 2), steps=4, few=4, repeats=1, growth=2)
    measure(load(name) | TINY[name], torch.device("cpu"), work, tmp_path, emit, 0, None)
    found = {result["what"]: result for result in results}
    assert "failed" not in found, found["failed"]
    kinds = KINDS[name]
    assert found["model"]["kinds"] == {kind: f"{held} of {published}" for kind, (held, published) in kinds.items()}
    for result in results:
        if result["what"] == "decode":
            more = sum((published - held) * result["kinds"][kind]["ms"] for kind, (held, published) in kinds.items())
            assert result["scaled_ms"] == pytest.approx(result["step_ms"] + more)
            assert result["layers_ms"] == pytest.approx(
                sum(held * result["kinds"][k]["ms"] for k, (held, _) in kinds.items())
            )
    assert {result["batch"] for result in results if result["what"] == "decode"} == {1, 2}
    repeated = [result for result in results if result["what"] == "graph"]
    assert [result["batch"] for result in repeated] == [1, 2]
    assert all(max(result["differences"]) < 1e-5 and result["scaled_ms"] > result["step_ms"] for result in repeated)
    assert [result["start"] for result in results if result["what"] == "growth"] == [132, SHORT]
    assert found["product decode"]["token_ms"] > 0
    reading = found["prefill"]
    more = sum((published - held) * reading["kinds_ms"][kind] for kind, (held, published) in kinds.items()) / 1e3
    assert reading["scaled_s"] >= reading["seconds"] + more
    assert found["restore"]["tokens"] == 103
    assert found["restore"]["segments"] == 1 and len(list(tmp_path.glob("second/random/*.kv"))) >= 1
