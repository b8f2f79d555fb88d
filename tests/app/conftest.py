"""Fixtures of the app's tests. Knows the fake engine, never a real one."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_engine import FakeEngine

from app.chats import Chats
from app.images import Picture, check_picture
from app.opening import OpeningModel
from app.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def chats(store: Store, engine: FakeEngine) -> Iterator[Chats]:
    opening = OpeningModel("fake-model", lambda on_progress: engine).start()
    opening.wait()
    made = Chats(store, opening)
    yield made
    made.close()


@pytest.fixture
def make_picture() -> Callable[..., Picture]:
    return lambda name="dot.png", **options: check_picture(png_bytes(**options), name)


def png_bytes(size: tuple[int, int] = (8, 8), color: str = "red", **options: object) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG", **options)
    return out.getvalue()
