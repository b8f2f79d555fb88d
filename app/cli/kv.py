"""`kv`: looks after the saved state of conversations: what is there, whether it is whole, and making room."""

from __future__ import annotations

import argparse
import sys

from app import settings
from app.cli.options import add_data_option
from app.cli.refuse import one_sentence

NAME = "kv"
HELP = "list, verify or prune the saved state of conversations"
_KEY_CHARS = 12
_EVERYTHING = 1 << 62


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `kv`."""
    parser.add_argument("action", choices=("list", "verify", "prune"))
    parser.add_argument(
        "--keep", metavar="SIZE", help="prune: remove what was not used longest until this much is left, such as 10GB"
    )
    add_data_option(parser)


def run(options: argparse.Namespace) -> int:
    """Do it; 1 when `verify` found faults."""
    data_dir = settings.data_dir(options.data_dir)
    folder = settings.state_dir(data_dir)
    keep_bytes = _EVERYTHING if options.keep is None else settings.parse_bytes(options.keep, least_bytes=0)
    from engine.api import list_saved, prune_saved, verify_saved

    if options.action == "verify":
        faults = verify_saved(folder)
        for fault in faults:
            print(one_sentence(Exception(fault)))
        if not faults:
            segments = list_saved(folder)
            print(f"All {len(segments):,} segments ({_size(sum(s.nbytes for s in segments))}) are whole.")
        return 1 if faults else 0
    if options.action == "prune":
        files, freed = prune_saved(folder, keep_bytes)
        print(f"Removed {files:,} segment{'' if files == 1 else 's'} and freed {_size(freed)}.")
        return 0
    from app.store import read_titles

    titles = read_titles(data_dir)
    segments = list_saved(folder)
    rows = [("KEY", "TOKENS", "SIZE", "CONVERSATIONS")]
    for segment in reversed(segments):  # the last used first
        names = [titles.get(one, "(deleted)") for one in segment.conversations]
        tokens = f"{segment.start:,}-{segment.stop:,}"
        rows.append((segment.key[:_KEY_CHARS], tokens, _size(segment.nbytes), ", ".join(names) or "(none)"))
    wide = [max(len(row[column]) for row in rows) for column in range(3)]
    for key, tokens, size, names_text in rows:
        print(f"{key:<{wide[0]}}  {tokens:>{wide[1]}}  {size:>{wide[2]}}  {names_text}")
    print(f"{len(segments):,} segments, {_size(sum(s.nbytes for s in segments))}", file=sys.stderr)
    return 0


def _size(nbytes: int) -> str:
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= step:
            return f"{nbytes / step:,.1f} {unit}"
    return f"{nbytes} B"
