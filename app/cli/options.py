"""Options that several commands share, and the engine settings they make. Imports no torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app import models, settings
from engine.settings import EngineSettings

if TYPE_CHECKING:
    from engine.api import Engine, LoadProgress


def positive(text: str) -> int:
    """argparse type: a whole number above zero."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above zero")
    return value


def port_number(text: str) -> int:
    """argparse type: a TCP port; 0 lets the system choose."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port between 0 and 65535")
    return value


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """--model."""
    parser.add_argument(
        "--model", metavar="PATH_OR_HF_ID", help="directory of a model, or its hub id (default: the embedded demo)"
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """How the engine may use this machine."""
    group = parser.add_argument_group("machine")
    group.add_argument("--device", help="cpu, cuda or cuda:N (default: the best there is)")
    group.add_argument("--threads", type=positive, metavar="N", help="CPU threads")
    group.add_argument("--context", type=positive, metavar="TOKENS", help="longest conversation")
    group.add_argument("--ram-budget", metavar="SIZE", help="most memory the engine keeps, such as 24GB")
    group.add_argument(
        "--cache",
        choices=("exact", "compact"),
        help="attention cache in plain numbers or in FP8 (default: exact on a CPU, compact on a GPU)",
    )
    group.add_argument(
        "--cuda-graphs",
        action="store_true",
        help="record decode steps and repeat the recordings, which spares the CPU; on a GPU that holds all experts",
    )


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """--data-dir."""
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where conversations are kept")


def add_state_options(parser: argparse.ArgumentParser) -> None:
    """Whether and how much conversation state is kept on the disk."""
    group = parser.add_argument_group("saved state")
    group.add_argument(
        "--state-budget", metavar="SIZE", help="most disk for saved state, such as 20GB (default: a tenth of the free)"
    )
    group.add_argument("--no-state", action="store_true", help="keep no state; conversations are read again")


def engine_settings(options: argparse.Namespace, data_dir: Path | None = None) -> EngineSettings:
    """The engine settings of a command line; also prepares the environment that torch reads at import.

    With `data_dir` (and without --no-state) the engine keeps conversation state beside the conversations."""
    settings.use_threads(options.threads)
    budget = None if data_dir is None or options.state_budget is None else settings.parse_bytes(options.state_budget)
    return EngineSettings(
        state_dir=None if data_dir is None or options.no_state else settings.state_dir(data_dir),
        state_budget_bytes=budget,
        device=options.device,
        context_tokens=options.context,
        ram_budget_bytes=None if options.ram_budget is None else settings.parse_bytes(options.ram_budget),
        threads=options.threads,
        cache_layout=options.cache,
        cuda_graphs=options.cuda_graphs,
    )


def engine_opener(
    model_path: Path, wishes: EngineSettings
) -> Callable[[Callable[[LoadProgress], None] | None], Engine]:
    """A function that opens the engine; importing it (and torch) happens inside."""

    def open_engine(on_progress: Callable[[LoadProgress], None] | None = None) -> Engine:
        from engine.api import Engine

        return Engine.open(model_path, wishes, on_progress)

    return open_engine


def open_engine(options: argparse.Namespace) -> Engine:
    """Open the engine that a terminal command asks for."""
    wishes = engine_settings(options)
    return engine_opener(models.find_model(options.model), wishes)(None)
