"""`export`: one conversation of the page as a zip file."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from app import settings
from app.cli.options import add_data_option
from app.refusals import Refusal

NAME = "export"
HELP = "write a conversation into one zip file"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `export`."""
    parser.add_argument("name", metavar="NAME", help="title of the conversation")
    parser.add_argument("file", type=Path, metavar="FILE.zip")
    parser.add_argument("--state", action="store_true", help="with its saved state, so that nothing is read again")
    add_data_option(parser)


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    from app.store import Store
    from app.transfer import export_conversation

    path = options.file.expanduser().absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise Refusal(f"'{options.file}' is not a file that can be written.")
    with contextlib.closing(Store(settings.data_dir(options.data_dir))) as store:
        conversation = store.named(options.name)
        if conversation is None:
            raise Refusal(f"There is no conversation '{options.name}'.")
        export_conversation(store, conversation.id, path, options.state)
    print(f"Wrote '{conversation.title}' to {options.file} ({path.stat().st_size:,} bytes).")
    return 0
