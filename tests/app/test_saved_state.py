"""The demo model with saved state, as a person uses it: terminal, kv, export with state, deleting. One model load each."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from app import cli
from app.store import ReplySettings, Store

DEMO = Path(__file__).parents[2] / "assets" / "demo"
pytestmark = pytest.mark.skipif(not (DEMO / "config.json").exists(), reason="the demo model is not here")


@pytest.fixture(autouse=True)
def few_threads(monkeypatch):
    """The tests here ask for one thread, which is a setting of the whole process: give back what was."""
    import torch

    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


@pytest.fixture
def terminal(capsys):
    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(one) for one in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def restored(errors: str) -> tuple[int, int, int]:
    found = re.search(r"([\d,]+) tokens restored in .* ms, ([\d,]+) read in .* ms, ([\d,]+) were live", errors)
    assert found is not None, errors
    return tuple(int(one.replace(",", "")) for one in found.groups())  # type: ignore[return-value]


def test_from_the_terminal_to_another_machine(terminal, tmp_path):
    here, there = ("--data-dir", tmp_path / "here"), ("--data-dir", tmp_path / "there")
    ask = ("ask", "--conversation", "Sums", "--temperature", 0, "--max-tokens", 12, "--context", 512, "--threads", 1)
    code, first, errors = terminal(*ask, "What is 7 plus 8?", *here)
    assert code == 0 and first.strip() and restored(errors)[0] == 0
    code, second, errors = terminal(*ask, "Thank you!", *here)
    tokens, read, _ = restored(errors)
    assert code == 0 and tokens > 15 and read < tokens

    code, table, _ = terminal("kv", "list", *here)
    assert code == 0 and "Sums" in table and "KEY" in table
    code, sentence, _ = terminal("kv", "verify", *here)
    assert code == 0 and "whole" in sentence

    out = tmp_path / "sums.zip"
    assert terminal("export", "Sums", out, "--state", *here)[0] == 0
    assert terminal("import", out, *there)[0] == 0
    store = Store(tmp_path / "there")
    assert [m.text for m in store.path(store.list()[0].id)][1::2] == [first.strip(), second.strip()]
    store.close()
    code, _, errors = terminal(*ask, "Hello!", *there)
    assert code == 0 and restored(errors)[0] > tokens

    damaged = next((tmp_path / "there" / "state").glob("*/*.kv"))
    content = bytearray(damaged.read_bytes())
    content[-5] ^= 8
    damaged.write_bytes(content)
    code, sentence, _ = terminal("kv", "verify", *there)
    assert code == 1 and damaged.name in sentence and sentence.strip().endswith(".")
    code, sentence, _ = terminal("kv", "prune", *there)
    assert code == 0 and sentence.startswith("Removed ")
    assert terminal("kv", "verify", *there)[0] == 0
    code, sentence, _ = terminal("kv", "prune", "--keep", "0", *here)
    assert code == 0 and not list((tmp_path / "here" / "state").glob("*/*.kv"))
    code, _, errors = terminal(*ask, "Hello!", *here, "--no-state")
    assert code == 0 and restored(errors)[0] == 0
    assert not list((tmp_path / "here" / "state").glob("*/*.kv"))


def test_deleting_a_conversation_deletes_its_state(terminal, tmp_path):
    from app.chats import Chats
    from app.opening import OpeningModel
    from app.settings import state_dir
    from engine.api import Engine, EngineSettings

    folder = state_dir(tmp_path)
    store = Store(tmp_path)
    model = OpeningModel(
        "demo", lambda p: Engine.open(DEMO, EngineSettings(threads=1, context_tokens=512, state_dir=folder), p)
    )
    chats = Chats(store, model.start())
    first = chats.send(None, "What is 7 plus 8?")
    second = chats.send(None, "Hello!")
    for generation in (first, second):
        while not generation.finished:
            generation.wait(generation.snapshot().version, 1)
    model.engine.start(first.conversation_id).save()
    assert len(list(folder.glob("*/*.kv"))) == 2
    chats.delete(first.conversation_id)
    end = time.monotonic() + 60
    while len(list(folder.glob("*/*.kv"))) > 1 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(list(folder.glob("*/*.kv"))) == 1
    chats.close()
    model.close()
    later = Chats(store, OpeningModel("broken", lambda p: (_ for _ in ()).throw(RuntimeError("no"))).start())
    later.delete(second.conversation_id)
    later.close()
    assert not list(folder.glob("*/*.kv"))
    store.close()


def test_more_conversations_than_fit_are_parked_and_come_back(tmp_path):
    from app.chats import Chats
    from app.opening import OpeningModel
    from app.settings import state_dir
    from engine.api import Engine, EngineSettings

    wishes = EngineSettings(threads=1, context_tokens=192, cache_tokens=256, state_dir=state_dir(tmp_path))
    store = Store(tmp_path)
    model = OpeningModel("demo", lambda progress: Engine.open(DEMO, wishes, progress)).start()
    chats = Chats(store, model)
    settings = ReplySettings(temperature=0.0, max_tokens=8)

    def turn(name: str | None, text: str) -> tuple[str, dict]:
        generation = chats.send(name, text, settings=settings)
        while not generation.finished:
            generation.wait(generation.snapshot().version, 1)
        message = store.message(generation.message_id)
        assert message.state == "done", message.error
        return generation.conversation_id, message.stats

    names = [turn(None, f"What is {number} plus 8?")[0] for number in range(6)]
    stats = [turn(name, "Thank you!")[1] for name in names]
    assert all(one["restored_tokens"] + one["reused_tokens"] > 15 for one in stats)
    assert sum(one["restored_tokens"] > 0 for one in stats) >= 2  # the cache holds four pages at most
    chats.close()
    model.close()
    store.close()
