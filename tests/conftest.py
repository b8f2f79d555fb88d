"""Fixtures for every test. Makes ``tests`` importable from the repository root."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # as the app does; must be set before torch is imported

_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.support.oracle import OracleCase, cached_case  # noqa: E402 - needs the path above
from tests.support.oracle.maker import drop_stale  # noqa: E402


@pytest.fixture(scope="session")
def oracle_root(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where made checkpoints are kept: pytest's cache folder, or a temporary one if that is switched off."""
    cache_plugin = getattr(pytestconfig, "cache", None)
    root = cache_plugin.mkdir("oracle") if cache_plugin is not None else tmp_path_factory.mktemp("oracle")
    drop_stale(root)
    return root


@pytest.fixture(scope="session")
def oracle_case(oracle_root: Path) -> Callable[..., OracleCase]:
    """``oracle_case(family, **settings)``: a tiny checkpoint with expected outputs, made once per distinct setting.

    ``settings`` are the arguments of ``make_checkpoint`` (seed, overrides, options, tokens, shards); any other keyword
    is an option of the family. The directory is shared between tests: copy it before changing files.
    """
    known: dict[str, OracleCase] = {}

    def get(family: str, **settings: object) -> OracleCase:
        key = repr((family, sorted(settings.items())))
        if key not in known:
            known[key] = cached_case(oracle_root, family, **settings)
        return known[key]

    return get
