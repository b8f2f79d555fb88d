"""SIGKILL at random moments: nothing that was shown is lost, and no answer continues from something wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.skipif(not (ROOT / "assets" / "demo" / "config.json").exists(), reason="the demo model is not here")
def test_a_dozen_kills_lose_nothing():
    result = subprocess.run(
        [sys.executable, "-m", "tests.app.crash_many", "--kills", "12", "--slow-disk", "0.1"],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [report["kills"] for report in reports] == [6, 6]
    assert all(report["shown_messages"] for report in reports)
