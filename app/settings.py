"""Settings of the app as plain data, and the only place that touches `os.environ`. Knows no engine and no page."""

from __future__ import annotations

import os
import re
from pathlib import Path

from app.refusals import Refusal

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7860
PORTS_TO_TRY = 20

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str, least_bytes: int = 1) -> int:
    """Bytes of a size such as `24GB`, `24GiB` or `1.5g`; plain numbers are bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if not match or match[2] not in _UNITS:
        raise Refusal(f"'{text}' is not a size; write it like 24GB or 24GiB.")
    size_bytes = int(float(match[1]) * _UNITS[match[2]])
    if size_bytes < least_bytes:
        raise Refusal(f"'{text}' is too small; this size must be larger than zero.")
    return size_bytes


def data_dir(wish: Path | None) -> Path:
    """The directory for conversations and pictures: the person's wish, else the platform's place."""
    if wish is not None:
        return wish.expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("dayzero", appauthor=False))


def state_dir(data_dir: Path) -> Path:
    """Where the engine keeps the saved state of the conversations in `data_dir`."""
    return data_dir / "state"


def keep_private(temp_dir: Path) -> None:
    """Switch off every report to the outside and give Gradio its own directory; call before gradio is imported."""
    temp_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    temp_dir.chmod(0o700)
    for name in [name for name in os.environ if name.startswith("GRADIO_")]:
        # A variable left over from another app must not share, expose or relocate this page.
        del os.environ[name]
    os.environ.update(
        GRADIO_ANALYTICS_ENABLED="False",
        GRADIO_RUN_HISTORY="False",
        GRADIO_TEMP_DIR=str(temp_dir),
        HF_HUB_DISABLE_TELEMETRY="1",
        DO_NOT_TRACK="1",
    )


def keep_hub_quiet() -> None:
    """No telemetry from the hub client; call before huggingface_hub is imported."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def use_threads(num_threads: int | None) -> None:
    """Tell the numeric libraries how many threads a person wants; call before torch is imported.

    A thread that waits for the others spins for some 50 us before it sleeps. The usual milliseconds make every short
    step wait for another program's time slice when that program wants the same cores; no spinning at all makes every
    step wait for a sleeping core (a decode step of the demo model on two cores takes 5, 5 and 12 ms alone, and up to
    130, 15 and 8 ms beside busy programs, with the usual, this much and no spinning).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    if num_threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
