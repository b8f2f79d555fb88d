"""Engines and runtimes of tiny checkpoints, opened once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.api import Engine, EngineSettings
from engine.runtime import Runtime, open_runtime
from tests.engine.helpers import DEMO
from tests.support.oracle import OracleCase


@pytest.fixture(scope="session")
def runtime_of() -> Callable[[OracleCase], Runtime]:
    """A runtime of a case, shared; whoever uses it closes the sequences it opens."""
    known: dict[Path, Runtime] = {}

    def get(case: OracleCase) -> Runtime:
        if case.path not in known:
            known[case.path] = open_runtime(case.path, EngineSettings(device="cpu", cache_tokens=4096))
        return known[case.path]

    return get


@pytest.fixture
def open_engine() -> Iterator[Callable[..., Engine]]:
    """`open_engine(path, **settings)`; closed after the test, the cache proved whole."""
    opened: list[Engine] = []

    def get(path: Path = DEMO, **settings: object) -> Engine:
        engine = Engine.open(path, EngineSettings(device="cpu", **settings))  # type: ignore[arg-type]
        opened.append(engine)
        return engine

    yield get
    for engine in opened:
        engine.close()
        engine._runtime.cache.check_integrity()


@pytest.fixture(scope="session")
def demo_runtime() -> Runtime:
    """The demo checkpoint, shared; whoever uses it closes the sequences it opens."""
    return open_runtime(DEMO, EngineSettings(device="cpu", cache_tokens=4096))
