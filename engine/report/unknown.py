"""What can be said about a checkpoint no family claims: which family it resembles, and where it differs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.checkpoint.directory import Checkpoint
from engine.errors import EngineError
from engine.families import FAMILIES
from engine.families.base import Config, Family, UnknownKey
from engine.model.loader import declare, disk_name
from engine.model.spec import ModelSpec

_NUMBER = re.compile(r"(?<![A-Za-z])\d+(?![A-Za-z])")
_SCALES = re.compile(r"\.(scale|weight_scale_inv|weight_scale)$|_scales$")


@dataclass
class Nearest:
    """The closest known family and the differences a new family file would have to cover."""

    family: str
    shared_names: float  # share of the checkpoint's tensor-name patterns the family knows
    unknown_keys: list[str] = field(default_factory=list)  # config keys that family does not read
    parse_fault: str = ""  # what else keeps the config from being read
    unknown_names: list[str] = field(default_factory=list)  # patterns in the checkpoint, not in the family
    absent_names: list[str] = field(default_factory=list)  # the other way round


def name_pattern(name: str) -> str:
    """A tensor name with every number replaced by N."""
    return _NUMBER.sub("N", name)


def nearest_family(checkpoint: Checkpoint) -> Nearest:
    """Compare the checkpoint's tensor names and config keys with every family."""
    names = [name for name in checkpoint.entries if not _SCALES.search(name)]
    return max((_compare(family, checkpoint.config, names) for family in FAMILIES), key=lambda n: n.shared_names)


def _compare(family: Family, config: Config, names: list[str]) -> Nearest:
    unknown_keys, parse_fault, spec = _read_keys(family, config)
    ignored = [] if spec is None else family.ignored_patterns(spec)
    present = {name_pattern(name) for name in names if not any(pattern.search(name) for pattern in ignored)}
    templates = {name_pattern(re.sub(r"\{[a-z]\}", "0", name)) for name in family.names.values()}
    if family.fused_experts is not None:
        fused = (family.fused_experts.gate_up, family.fused_experts.down)
        templates |= {name_pattern(name.replace("{n}", "0")) for name in fused}
    needed = templates if spec is None else {name_pattern(disk_name(family, name)) for name in declare(spec)}
    return Nearest(
        family=family.name,
        shared_names=len(present & templates) / max(len(present), 1),
        unknown_keys=unknown_keys,
        parse_fault=parse_fault,
        unknown_names=sorted(present - templates),
        absent_names=sorted(needed - present),
    )


def _read_keys(family: Family, config: Config) -> tuple[list[str], str, ModelSpec | None]:
    """Parse as this family, leaving out keys it does not know one after another."""
    unknown: list[str] = []
    patched = {**config, "model_type": family.model_types[-1]}
    for _ in range(200):
        try:
            return unknown, "", family.parse(patched)
        except UnknownKey as key:
            unknown.append(key.key if key.where == "config.json" else f"{key.where}.{key.key}")
            patched = _without(patched, key.key)
        except (EngineError, KeyError, TypeError, AttributeError, ValueError) as problem:
            return unknown, str(problem), None
    return unknown, "", None


def _without(config: Config, key: str) -> Config:
    return {
        name: _without(value, key) if isinstance(value, dict) else value
        for name, value in config.items()
        if name != key
    }
