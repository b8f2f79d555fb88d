"""Settings of the app as plain data, and the only place that touches `os.environ`. Knows no engine and no page."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from app.refusals import Refusal

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7860
PORTS_TO_TRY = 20

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True)
class PageSettings:
    """How the page is served. `port` None: the usual one, or the next free one."""

    host: str = DEFAULT_HOST
    port: int | None = None
    open_browser: bool = True


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

    Threads that wait for each other sleep instead of spinning: with a browser on the same cores, spinning makes every
    short step wait for the other program's time slice (measured: 15 times slower on two busy cores).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if num_threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
