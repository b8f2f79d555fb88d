"""Finds the command, runs it, and turns every refusal into one sentence and exit code 2.

A new command is one module with `NAME`, `HELP`, `add_options` and `run`, and one line in COMMANDS."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from app.cli import ask, check, export, import_, kv, page, plan, score
from app.cli.refuse import one_sentence
from app.refusals import Refusal
from engine.errors import EngineError

COMMANDS: tuple[ModuleType, ...] = (ask, check, score, plan, kv, export, import_)

EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """argparse that refuses in one sentence instead of printing the usage as well."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(message[:1].upper() + message[1:].rstrip(".") + f" (see {self.prog} --help).")


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command registered; without a command the page opens."""
    parser = _Parser(
        prog="python -m app", description="Chat with a local model: opens the page, or answers in the terminal."
    )
    page.add_options(parser)
    parser.set_defaults(run=page.run)
    above = {action.dest for action in parser._actions}
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        sub = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_options(sub)
        for action in sub._actions:
            if action.dest in above and action.dest != "help":
                # An option given before the command must not be reset by the command's own default.
                action.default = argparse.SUPPRESS
        sub.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        options = build_parser().parse_args(arguments)
        return int(options.run(options))
    except (Refusal, EngineError) as error:
        print(one_sentence(error), file=sys.stderr)
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has closed it, as `head` does; the rest has no reader.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERRUPTED
    except MemoryError:
        print("There is not enough memory for this.", file=sys.stderr)
        return EXIT_REFUSED
    except Exception as error:
        logging.getLogger("dayzero").debug("unexpected", exc_info=True)
        print(f"This did not work: {one_sentence(error)}", file=sys.stderr)
        return EXIT_REFUSED
