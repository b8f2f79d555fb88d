"""`import`: takes a conversation over that `export` or the page wrote."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from app import settings
from app.cli.options import add_data_option

NAME = "import"
HELP = "take a conversation over from a zip file"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `import`."""
    parser.add_argument("file", type=Path, metavar="FILE.zip")
    add_data_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read the file and store what is in it."""
    from app.store import Store
    from app.transfer import import_conversation

    with contextlib.closing(Store(settings.data_dir(options.data_dir))) as store:
        conversation = import_conversation(store, options.file.expanduser())
    print(f"Imported '{conversation.title}'.")
    return 0
