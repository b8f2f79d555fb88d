"""`plan`: prints where every byte of a model would go on this machine, without loading it."""

from __future__ import annotations

import argparse

from app import models
from app.cli.options import add_engine_options, engine_settings

NAME = "plan"
HELP = "print the memory plan of a model on this machine"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `plan`."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="directory of a model, or its hub id")
    add_engine_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plan as a table."""
    wishes = engine_settings(options)
    model_path = models.find_model(options.model)
    from engine.api import plan_model

    print(plan_model(model_path, wishes))
    return 0
