"""generation_config.json: how a checkpoint wants to be sampled and where its answers end. Read and checked before loading."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from engine.errors import BadCheckpoint, BadRequest
from engine.generation.sampler import Sampling

FILE = "generation_config.json"


def check_defaults(config: dict[str, Any]) -> frozenset[int]:
    """The ids that end an answer; raises BadCheckpoint naming the key whose value makes no sense."""
    values: dict[str, Any] = {}
    for key in ("repetition_penalty", "temperature", "top_p", "top_k", "min_p", "max_new_tokens"):
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong(key, value, "a number")
        if key in ("top_k", "max_new_tokens") and not isinstance(value, int):
            raise _wrong(key, value, "a whole number")
        values[key] = value
    if values.pop("max_new_tokens", 1) < 1:
        raise _wrong("max_new_tokens", config["max_new_tokens"], "at least 1")
    try:
        Sampling(**{f.name: values[f.name] for f in fields(Sampling) if f.name in values}).check()
    except BadRequest as problem:
        raise BadCheckpoint(f"In {FILE}, {problem}") from problem
    eos = config.get("eos_token_id")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(type(i) is int for i in ids):
        raise _wrong("eos_token_id", eos, "token ids")
    return frozenset(ids)


def _wrong(key: str, value: object, expected: str) -> BadCheckpoint:
    return BadCheckpoint(f"{key} in {FILE} is {value!r}, expected {expected}.")
