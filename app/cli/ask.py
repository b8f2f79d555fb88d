"""`ask`: answers in the terminal, streaming; with --batch, many questions through one loaded model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from app.cli import batch, talk
from app.cli.options import (
    add_data_option,
    add_engine_options,
    add_model_option,
    add_state_options,
    open_engine,
    positive,
)
from app.images import Picture, read_picture
from app.refusals import Refusal
from engine.events import Finished, Notice, Stats, Text, Thinking
from engine.messages import Image, Message, ReplyOptions

NAME = "ask"
HELP = "answer a question in the terminal"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `ask`."""
    parser.add_argument("question", nargs="?", help="the question; '-' reads it from standard input")
    parser.add_argument("--image", action="append", default=[], metavar="FILE", help="a picture; may be repeated")
    parser.add_argument("--batch", metavar="QUESTIONS.jsonl", help="one JSON object per line, see the manual")
    parser.add_argument("--conversation", metavar="NAME", help="start or continue this conversation of the page")
    add_data_option(parser)
    add_model_option(parser)
    group = parser.add_argument_group("answer")
    group.add_argument("--system", default="", metavar="TEXT", help="instructions before the conversation")
    group.add_argument("--max-tokens", type=positive, metavar="N")
    group.add_argument("--temperature", type=float, metavar="T", help="0 always takes the likeliest token")
    group.add_argument("--top-p", type=float, metavar="P")
    group.add_argument("--top-k", type=int, metavar="K")
    group.add_argument("--min-p", type=float, metavar="P")
    group.add_argument("--repetition-penalty", type=float, metavar="R")
    group.add_argument("--seed", type=int, metavar="N")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; repeatable")
    group.add_argument(
        "--thinking", action=argparse.BooleanOptionalAction, default=None, help="think first, where the model can"
    )
    add_engine_options(parser)
    add_state_options(parser)


def run(options: argparse.Namespace) -> int:
    """Answer one question or a file of them."""
    if options.batch is not None:
        if options.question is not None or options.image:
            raise Refusal("Give either a question or --batch, not both.")
        if options.conversation is not None:
            raise Refusal("Give either --conversation or --batch, not both.")
        return batch.run(options)
    text = sys.stdin.read() if options.question == "-" else (options.question or "")
    pictures = [_picture(name) for name in options.image]
    if not text.strip() and not pictures:
        raise Refusal('Ask something: python -m app ask "question", or add a picture with --image.')
    if options.conversation is not None:
        return talk.run(options, text, pictures)
    messages = [Message("system", options.system)] if options.system.strip() else []
    messages.append(Message("user", text, tuple(Image(picture.content) for picture in pictures)))
    engine = open_engine(options)
    try:
        _print_answer(engine.start("ask").reply(messages, reply_options(options)))
    finally:
        engine.close()
    return 0


def _picture(name: str) -> Picture:
    return read_picture(Path(name).expanduser())


def read_image(path: Path, name: str) -> Image:
    """A checked picture for the engine."""
    return Image(read_picture(path.expanduser(), name).content)


def reply_options(options: argparse.Namespace, overrides: dict[str, Any] | None = None) -> ReplyOptions:
    """The answer options of a command line, with the values of one batch line on top."""
    values: dict[str, Any] = {
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "min_p": options.min_p,
        "repetition_penalty": options.repetition_penalty,
        "seed": options.seed,
        "stop": tuple(options.stop),
        "thinking": options.thinking,
    }
    return ReplyOptions(**{**values, **(overrides or {})})


def _print_answer(events: Any) -> None:
    """Stream the answer to standard output; thinking and speed go to standard error."""
    thought = False
    for event in events:
        if isinstance(event, Thinking):
            thought = True
            print(event.text, end="", file=sys.stderr, flush=True)
        elif isinstance(event, Text):
            if thought:
                print("\n", file=sys.stderr, flush=True)
                thought = False
            print(event.text, end="", flush=True)
        elif isinstance(event, Notice):
            print(event.text, file=sys.stderr)
        elif isinstance(event, Stats):
            print(flush=True)
            print(
                f"{event.prompt_tokens:,} prompt tokens, {event.new_tokens:,} new at"
                f" {event.decode_tokens_per_second:.1f} tokens/s,"
                f" prompt read at {event.prefill_tokens_per_second:,.0f} tokens/s",
                file=sys.stderr,
            )
        elif isinstance(event, Finished) and event.reason != "stop":
            print(f"The answer was ended by {talk.ENDINGS[event.reason]}.", file=sys.stderr)
