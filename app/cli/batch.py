"""`ask --batch`: many questions at once through one engine, one JSON line per answer, in the order of the questions."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.cli.refuse import one_sentence
from app.refusals import Refusal
from engine.errors import EngineError
from engine.events import Finished, Stats, Text, Thinking
from engine.messages import Image, Message

# Each waiting request is one thread that sleeps in the scheduler's queue; the engine itself decides how many run.
MAX_WAITING = 64

_KINDS: dict[str, tuple[type, ...]] = {
    "question": (str,),
    "image": (str, list),
    "system": (str,),
    "max_tokens": (int,),
    "temperature": (int, float),
    "seed": (int,),
}


@dataclass(frozen=True)
class Question:
    """One good line: what to ask and the options that differ from the command line's."""

    messages: list[Message]
    overrides: dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Answer every line; 2 when any of them failed."""
    from app.cli.ask import reply_options
    from app.cli.options import open_engine

    source = Path(options.batch).expanduser()
    lines = read_lines(source)
    if not any(line.strip() for line in lines):
        raise Refusal(f"'{options.batch}' holds no questions.")
    engine = open_engine(options)

    def answer(number: int, line: str) -> dict[str, Any]:
        try:
            question = parse_line(line, source.parent, options.system)
            session = engine.start(f"batch-{number}")
            try:
                return _answer(session.reply(question.messages, reply_options(options, question.overrides)))
            finally:
                session.close()
        except (Refusal, EngineError) as error:
            return {"error": f"line {number}: {one_sentence(error)}"}
        except Exception as error:
            return {"error": f"line {number}: {one_sentence(error)}"}

    failed = False
    pool = ThreadPoolExecutor(MAX_WAITING, thread_name_prefix="question")
    try:
        answers: list[Future[dict[str, Any]]] = [
            pool.submit(answer, number, line) for number, line in enumerate(lines, 1) if line.strip()
        ]
        for future in answers:
            result = future.result()
            failed = failed or "error" in result
            print(json.dumps(result, ensure_ascii=False), flush=True)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    else:
        pool.shutdown()
    finally:
        engine.close()
    return 2 if failed else 0


def read_lines(source: Path) -> list[str]:
    """Lines of the file, or of standard input for `-`."""
    try:
        text = sys.stdin.read() if str(source) == "-" else source.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise Refusal(f"'{source}' is not a UTF-8 text file.") from None
    except OSError as error:
        raise Refusal(f"'{source}' cannot be read: {error.strerror or error}.") from None
    # Only real line ends: a question may hold other separators that splitlines would cut at.
    return text.replace("\r\n", "\n").split("\n")


def parse_line(line: str, beside: Path, system: str) -> Question:
    """One line as a question; pictures are looked for beside the file. Raises Refusal with what is wrong."""
    from app.cli.ask import read_image

    try:
        values = json.loads(line)
    except ValueError as error:
        raise Refusal(f"not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise Refusal("not a JSON object")
    for key, value in values.items():
        if key not in _KINDS:
            raise Refusal(f"unknown key '{key}'; known are {', '.join(_KINDS)}")
        if value is not None and (not isinstance(value, _KINDS[key]) or isinstance(value, bool)):
            raise Refusal(f"'{key}' has the wrong type")
    text = values.get("question") or ""
    names = values.get("image") or []
    names = [names] if isinstance(names, str) else names
    if not all(isinstance(name, str) for name in names):
        raise Refusal("'image' has the wrong type")
    images: tuple[Image, ...] = tuple(read_image(beside / Path(name).expanduser(), name) for name in names)
    if not text.strip() and not images:
        raise Refusal("the question is empty")
    system = values["system"] if values.get("system") is not None else system
    messages = [Message("system", system)] if system.strip() else []
    overrides = {key: values[key] for key in ("max_tokens", "temperature", "seed") if values.get(key) is not None}
    return Question([*messages, Message("user", text, images)], overrides)


def _answer(events: Any) -> dict[str, Any]:
    text: list[str] = []
    thinking: list[str] = []
    result: dict[str, Any] = {}
    for event in events:
        match event:
            case Text(piece):
                text.append(piece)
            case Thinking(piece):
                thinking.append(piece)
            case Stats():
                values = asdict(event)
                result["prompt_tokens"] = values["prompt_tokens"]
                result["new_tokens"] = values["new_tokens"]
                result["timings"] = {key: round(value, 3) for key, value in values.items() if key.endswith("_ms")}
                result["timings"]["tokens_per_second"] = round(event.decode_tokens_per_second, 2)
            case Finished(reason):
                result["finish_reason"] = reason
    thoughts = {"thinking": "".join(thinking)} if thinking else {}
    return {"text": "".join(text), **thoughts, "finish_reason": result.pop("finish_reason", "cancelled"), **result}
