"""`ask --conversation`: one turn of a conversation that the page keeps, in the terminal. Same store, same worker."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from dataclasses import replace
from typing import Any

from app import models, settings
from app.cli.options import engine_opener, engine_settings
from app.images import Picture
from app.refusals import Refusal
from app.store import ReplySettings, Store

ENDINGS = {"length": "the token limit", "context_full": "the full context", "cancelled": "a stop"}
_NOT_KEPT = ("top_p", "top_k", "min_p", "repetition_penalty", "stop")


class _Logged(logging.Handler):
    """Remembers what the engine's log has already said on standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.sentences.add(record.getMessage())


def run(options: argparse.Namespace, text: str, pictures: list[Picture]) -> int:
    """Add a message to the conversation of this name (new if there is none), and stream the answer."""
    name = " ".join(options.conversation.split())
    if not name:
        raise Refusal("A conversation needs a name.")
    for option in _NOT_KEPT:
        if getattr(options, option):
            raise Refusal(f"--{option.replace('_', '-')} is not kept with a conversation; leave it out.")
    data_dir = settings.data_dir(options.data_dir)
    wishes = engine_settings(options, data_dir)
    model_path = models.find_model(options.model)
    from app.chats import Chats
    from app.opening import OpeningModel

    logged = _Logged()
    logging.getLogger("engine").addHandler(logged)
    with contextlib.closing(Store(data_dir)) as store:
        model = OpeningModel(model_path.name, engine_opener(model_path, wishes)).start()
        chats = Chats(store, model)
        try:
            model.wait()
            conversation = store.named(name)
            kept = conversation.settings if conversation is not None else ReplySettings()
            generation = chats.send(
                None if conversation is None else conversation.id,
                text,
                pictures,
                settings=_with_wishes(kept, options),
                title=name,
            )
            _print_live(generation, logged.sentences)
            message = store.message(generation.message_id)
            if message.state == "error":
                raise Refusal(message.error)
            _print_facts(message.stats, message.finish_reason)
        finally:
            logging.getLogger("engine").removeHandler(logged)
            chats.close()
            model.close()
    return 0


def _with_wishes(kept: ReplySettings, options: argparse.Namespace) -> ReplySettings:
    """The conversation's settings, changed where the command line says so."""
    wishes = {key: getattr(options, key) for key in ("temperature", "max_tokens", "seed", "thinking")}
    if options.system.strip():
        wishes["system"] = options.system
    return replace(kept, **{key: value for key, value in wishes.items() if value is not None})


def _print_live(generation: Any, logged: set[str]) -> None:
    """New text to standard output as it comes; thinking and warnings to standard error."""
    version, text, thought, said = -1, 0, 0, 0
    while True:
        live = generation.wait(version, 0.5)
        version = live.version
        for sentence in live.notices[said:]:
            if sentence not in logged:
                print(sentence, file=sys.stderr, flush=True)
        print(live.thinking[thought:], end="", file=sys.stderr, flush=True)
        if len(live.text) > text:
            if live.thinking and not text:
                print("\n", file=sys.stderr, flush=True)
            print(live.text[text:], end="", flush=True)
        text, thought, said = len(live.text), len(live.thinking), len(live.notices)
        if live.phase == "finished":
            print(flush=True)
            return


def _print_facts(stats: dict[str, Any], finish_reason: str) -> None:
    restored, live = stats.get("restored_tokens", 0), stats.get("reused_tokens", 0)
    read = stats.get("prompt_tokens", 0) - restored - live
    print(
        f"{restored:,} tokens restored in {stats.get('restore_ms', 0.0):,.0f} ms,"
        f" {read:,} read in {stats.get('prefill_ms', 0.0):,.0f} ms, {live:,} were live (0 ms),"
        f" {stats.get('new_tokens', 0):,} new in {stats.get('decode_ms', 0.0):,.0f} ms"
        f" ({stats.get('decode_tokens_per_second', 0.0):.1f} tokens/s)",
        file=sys.stderr,
    )
    if finish_reason in ENDINGS:
        print(f"The answer was ended by {ENDINGS[finish_reason]}.", file=sys.stderr)
