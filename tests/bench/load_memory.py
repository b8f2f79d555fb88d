"""Peak RAM of opening a checkpoint against its memory plan, with a synthetic Hy4 checkpoint of about 1 GB.

python -m tests.bench.load_memory [--gigabytes 1.0] [--budget 4GiB]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

_CHILD = """
import sys, resource, json
from pathlib import Path
from typing import Any
import torch
from engine.runtime import open_runtime
from engine.settings import EngineSettings
from engine.memory.machine import process_bytes
torch.zeros(1)
before = process_bytes()
runtime = open_runtime(Path(sys.argv[1]), EngineSettings(device="cpu", ram_budget_bytes=int(sys.argv[2])))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
plan = runtime.described.plan
print(json.dumps({"before": before, "peak": peak, "planned": plan.total_bytes("RAM"), "experts": plan.experts}))
"""


def write_checkpoint(folder: Path, gigabytes: float) -> int:
    """A hy_v4 checkpoint whose experts make up most of `gigabytes`; returns its bytes on disk."""
    from tests.support.synthetic import write_synthetic_hy_v4

    return write_synthetic_hy_v4(folder, int(gigabytes * 1e9))


def measure(folder: Path, budget_bytes: int) -> dict[str, Any]:
    """Open in a fresh process and read its peak."""
    result = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder), str(budget_bytes)], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as name:
        disk = write_checkpoint(Path(name), args.gigabytes)
        print(f"checkpoint {disk / 1e9:.2f} GB on disk")
        for budget in (16 << 30, 2 << 30):
            got = measure(Path(name), budget)
            grown = got["peak"] - got["before"]
            print(
                f"budget {budget >> 30:>3} GiB, experts {got['experts']:8} planned {got['planned'] / 1e9:6.2f} GB, "
                f"grew by {grown / 1e9:6.2f} GB = {grown / got['planned']:.2f} of the plan"
            )


if __name__ == "__main__":
    main()
