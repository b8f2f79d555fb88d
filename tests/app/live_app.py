"""The app as its own process for tests: the real page with the fake engine, or with a real model when one is named."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

# `python -m app` with the fake engine in the place of engine.api; everything else is the real program.
WITH_FAKE = """
import pathlib, sys, threading, types
sys.path[:0] = [{root!r}, {here!r}]
import fake_engine
class Slow(fake_engine.FakeEngine):
    @classmethod
    def open(cls, model_path, settings=None, on_progress=None):
        engine = super().open(model_path, settings, on_progress)
        gate = pathlib.Path({gate!r})
        while {gate!r} and not gate.exists():
            threading.Event().wait(0.02)
        return engine
api = types.ModuleType("engine.api")
api.Engine = Slow
api.delete_saved = lambda *values: None
api.list_saved = lambda *values: []
sys.modules["engine.api"] = api
from app.cli import main
sys.exit(main(sys.argv[1:]))
"""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LiveApp:
    """Starts, restarts and ends one app on one data directory; the port stays the same over restarts."""

    def __init__(self, data_dir: Path, real: bool = False, model: Path | None = None, gate: Path | None = None) -> None:
        self.data_dir = data_dir
        self.real = real
        self.model = model
        self.gate = gate  # the fake model is open once this file exists
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None
        self._log = data_dir.parent / f"{data_dir.name}.log"

    def __enter__(self) -> LiveApp:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, wait: bool = True) -> LiveApp:
        script = WITH_FAKE.format(root=str(ROOT), here=str(HERE), gate=str(self.gate or ""))
        command = [sys.executable, "-m", "app"] if self.real else [sys.executable, "-c", script]
        model = self.model or (None if self.real else HERE)
        command += ["--no-browser", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        command += ["--model", str(model)] if model is not None else []
        command += ["--threads", "1"] if self.real else []  # several would wait for each other on a busy machine
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, text=True, env={**os.environ, "GRADIO_SHARE": "True"}
            )
        if wait:
            self.wait_until_up()
        return self

    def wait_until_up(self) -> None:
        end = time.monotonic() + 180
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            try:
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.address, timeout=30).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the page did not come up: {self.output()}")

    def interrupt(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.interrupt()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def output(self) -> str:
        return self._log.read_text()
