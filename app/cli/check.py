"""`check`: the Day-0 report of a model. Exit code 0 only if the model would run on this machine."""

from __future__ import annotations

import argparse
import json

from app import models
from app.cli.options import add_engine_options, engine_settings

NAME = "check"
HELP = "report whether a model would run here, and what is missing"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `check`."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="directory of a model, or its hub id")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_engine_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the report."""
    wishes = engine_settings(options)
    model_path = models.find_model(options.model)
    from engine.api import check_model, report_text

    report = check_model(model_path, wishes)
    print(json.dumps(report.as_json(), indent=2) if options.json else report_text(report))
    return 0 if report.would_run else 1
