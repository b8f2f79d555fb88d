"""`score`: writes what the model computes for a fixed prompt, for whoever compares it with a reference."""

from __future__ import annotations

import argparse
from pathlib import Path

from app import models
from app.cli.options import add_engine_options, engine_settings
from app.refusals import Refusal

NAME = "score"
HELP = "write logits, choices and greedy steps of a fixed prompt as safetensors"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `score`."""
    parser.add_argument("model", metavar="MODEL", help="directory of a model, or its hub id")
    parser.add_argument("--prompt", required=True, metavar="PROMPT.json", help="input ids, pictures, greedy lengths")
    parser.add_argument("--out", required=True, metavar="OUT.safetensors")
    add_engine_options(parser)


def run(options: argparse.Namespace) -> int:
    """Check what can be checked cheaply, then let the engine write the file."""
    prompt = Path(options.prompt).expanduser()
    out = Path(options.out).expanduser()
    if not prompt.is_file():
        raise Refusal(f"There is no file '{options.prompt}'.")
    if not out.absolute().parent.is_dir():
        raise Refusal(f"There is no directory '{out.parent}' to write '{out.name}' into.")
    wishes = engine_settings(options)
    model_path = models.find_model(options.model)
    from engine.scoring import score_file

    score_file(model_path, prompt, out, wishes)
    return 0
