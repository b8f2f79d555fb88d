"""Kills the app's worker again and again while it chats, and checks after every restart that nothing shown was lost.

`python -m tests.app.crash_many --kills 200 [--slow-disk 0.2]`; a small number of kills is part of the normal tests.
The worker runs in a forked child without a page: with the fake engine, or with the demo model and saved state. The
child prints what a page would have shown; the parent kills it with SIGKILL at a random moment and believes only that."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fake_engine import FakeEngine

from app.chats import Chats
from app.generation import Generation
from app.opening import OpeningModel
from app.prompt import build_prompt, reply_options
from app.refusals import StoreError
from app.settings import state_dir
from app.store import ReplySettings, Store
from engine.api import Engine, EngineSettings, Text, list_saved, verify_saved

DEMO = Path(__file__).parents[2] / "assets" / "demo"
WISHES = ReplySettings(temperature=0.0, max_tokens=12)
QUESTIONS = (
    "Hello! How are you?",
    "What is 7 plus 8?",
    "What is the capital of France?",
    "Tell me something about the sea.",
    "What colour is the sky?",
    "Thank you!",
)
CONVERSATIONS = 3
LONGEST_TURNS = 8


@dataclass
class Report:
    """What came out. Only `kills` should be large."""

    kind: str
    kills: int = 0
    restarts: int = 0
    shown_messages: int = 0
    shown_partly: int = 0
    lost_messages: int = 0
    most_tail_lost_chars: int = 0
    compared_answers: int = 0
    wrong_continuations: int = 0
    restored_turns: int = 0
    restored_tokens: int = 0
    segments: int = 0
    state_faults: list[str] = field(default_factory=list)
    unfinished_files: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not (self.lost_messages or self.wrong_continuations or self.state_faults)


# the child: a worker that chats until it is killed


def chat(data_dir: Path, kind: str, seed: int, slow_disk_s: float, say: Callable[..., None]) -> None:
    """Open everything as `python -m app` does, then ask and follow for ever."""
    chance = random.Random(seed)
    if slow_disk_s:
        sync = os.fsync

        def slowly(descriptor: int) -> None:
            time.sleep(chance.uniform(0, slow_disk_s))
            sync(descriptor)

        os.fsync = slowly  # type: ignore[assignment]
    store = Store(data_dir)
    settings = EngineSettings(threads=1, context_tokens=1024, state_dir=state_dir(data_dir))
    opening: Callable[[Any], Any] = (
        (lambda progress: FakeEngine()) if kind == "fake" else (lambda progress: Engine.open(DEMO, settings, progress))
    )
    chats = Chats(store, OpeningModel(kind, opening).start())
    chats.model.wait()
    say("ready")
    while True:
        known = store.list()
        fits = [one.id for one in known if len(store.path(one.id)) < 2 * LONGEST_TURNS]
        old = chance.choice(fits) if len(known) >= CONVERSATIONS and fits else None
        text = chance.choice(QUESTIONS) if kind == "demo" else chance.choice(("hello", "long", "long think", "think"))
        generation = chats.send(old, text, settings=WISHES if kind == "demo" else ReplySettings())
        say("sent", conversation=generation.conversation_id, message=generation.message_id, text=text)
        follow(generation, say, chance)
        if generation.stop_asked.is_set() or (kind == "fake" and chance.random() < 0.2):
            chats.stop(generation.conversation_id)
        message = store.message(generation.message_id)
        say("ended", message=message.id, text=message.text, state=message.state, restored=restored(message.stats))


def restored(stats: dict[str, Any]) -> int:
    return int(stats.get("restored_tokens", 0))


def follow(generation: Generation, say: Callable[..., None], chance: random.Random) -> None:
    """What a page does: show the text as it grows."""
    version, text = -1, ""
    while True:
        live = generation.wait(version, 0.08)
        version = live.version
        if live.text != text:
            text = live.text
            say("partly", message=generation.message_id, text=text)
        if live.phase == "finished":
            return


# the parent: kills, and checks what is on the disk


@dataclass
class Shown:
    """What pages have shown, over all lives of the worker."""

    users: dict[int, tuple[str, str]] = field(default_factory=dict)  # answer id -> (conversation, question)
    partly: dict[int, str] = field(default_factory=dict)
    ended: dict[int, tuple[str, str]] = field(default_factory=dict)


def live_once(data_dir: Path, kind: str, seed: int, slow_disk_s: float, shown: Shown, report: Report) -> None:
    """One life of the worker, from its start to SIGKILL at a random moment."""
    chance = random.Random(seed)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)

            def say(event: str, **values: Any) -> None:
                os.write(writer, json.dumps({"event": event, **values}).encode() + b"\n")

            chat(data_dir, kind, seed, slow_disk_s, say)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    lines: list[bytes] = []
    kill_at = time.monotonic() + 60
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        os.set_blocking(reader, False)
        rest = b""
        while True:
            part = pipe.read(1 << 16)
            if part == b"":
                break
            if part is None:
                time.sleep(0.002)
            else:
                rest += part
                *whole, rest = rest.split(b"\n")
                if not lines and whole:
                    kill_at = time.monotonic() + chance.uniform(0.0, 1.2 if kind == "fake" else 2.0)
                lines += whole
            if time.monotonic() >= kill_at:
                kill_at = time.monotonic() + 60
                os.kill(child, signal.SIGKILL)
                report.kills += 1
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the worker ended by itself"
    for line in lines:
        note(json.loads(line), shown, report)


def note(event: dict[str, Any], shown: Shown, report: Report) -> None:
    match event["event"]:
        case "ready":
            report.restarts += 1
        case "sent":
            shown.users[event["message"]] = (event["conversation"], event["text"])
        case "partly":
            shown.partly[event["message"]] = event["text"]
        case "ended":
            shown.ended[event["message"]] = (event["text"], event["state"])
            if event["restored"]:
                report.restored_turns += 1
                report.restored_tokens += event["restored"]


def check_messages(store: Store, shown: Shown, report: Report) -> None:
    """Everything that was shown must be in the store: questions and ended answers to the letter."""
    report.shown_messages = len(shown.users) + len(shown.ended)
    report.shown_partly = len(shown.partly.keys() - shown.ended.keys())
    for answer_id, (conversation_id, question) in shown.users.items():
        try:
            answer = store.message(answer_id)
            asked = store.message(answer.parent_id or 0)
        except StoreError:
            report.lost_messages += 1
            continue
        if asked.text != question or answer.conversation_id != conversation_id:
            report.lost_messages += 1
        if answer_id in shown.ended:
            if (answer.text, answer.state) != shown.ended[answer_id]:
                report.lost_messages += 1
            continue
        seen = shown.partly.get(answer_id, "")
        if not (seen.startswith(answer.text) or answer.text.startswith(seen)):
            report.lost_messages += 1
        report.most_tail_lost_chars = max(report.most_tail_lost_chars, len(seen) - len(answer.text))


def check_state(data_dir: Path, report: Report) -> None:
    """Every segment is whole; what was being written when the kill came never got its name."""
    folder = state_dir(data_dir)
    if folder.is_dir():
        # Named but not yet in the index is whole and found again; a fault is anything that could be loaded and is wrong.
        report.state_faults += [one for one in verify_saved(folder) if not one.endswith("is not in the index.")]
        report.segments = len(list_saved(folder))
        report.unfinished_files = len(list(folder.glob("*/.*.part")))


def check_answers(store: Store, report: Report) -> None:
    """Every whole answer must be the one that an engine gives which never saved or restored anything."""
    engine = Engine.open(DEMO, EngineSettings(threads=1, context_tokens=1024))
    for conversation in store.list():
        path = store.path(conversation.id)
        session = engine.start(conversation.id)
        for number, message in enumerate(path):
            if message.role != "assistant" or message.state != "done":
                continue
            prompt = build_prompt(conversation.settings, path[:number])
            report.compared_answers += 1
            options = reply_options(conversation.settings)
            text = "".join(one.text for one in session.reply(prompt, options) if isinstance(one, Text))
            if text != message.text:
                report.wrong_continuations += 1
                print(f"expected {text!r}, saved {message.text!r}", file=sys.stderr)
    engine.close()


def crash(data_dir: Path, kind: str, kills: int, seed: int, slow_disk_s: float = 0.0) -> Report:
    """Kill the worker `kills` times; messages are checked after every kill, answers and state at the end."""
    report, shown, start = Report(kind), Shown(), time.monotonic()
    for life in range(kills):
        live_once(data_dir, kind, seed * 10_000 + life, slow_disk_s, shown, report)
        report.lost_messages = 0  # counted anew over everything that was ever shown
        with contextlib.closing(Store(data_dir)) as store:
            check_messages(store, shown, report)
        if report.lost_messages:
            break
    if kind == "demo":
        check_state(data_dir, report)
        with contextlib.closing(Store(data_dir)) as store:
            check_answers(store, report)
    report.seconds = round(time.monotonic() - start, 1)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--slow-disk", type=float, default=0.0, metavar="S", help="every fsync waits up to this long")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as place:
        for kind, kills in (("fake", options.kills // 2), ("demo", options.kills - options.kills // 2)):
            report = crash(Path(place) / kind, kind, kills, options.seed, options.slow_disk)
            print(json.dumps(asdict(report)), flush=True)
            good = good and report.is_good
            if kind == "fake":
                continue
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
