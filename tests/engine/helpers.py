"""What the engine's tests share: opening tiny checkpoints, running prompts, copying checkpoints to damage them."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.api import Engine, EngineError, Event, Finished, Message, ReplyOptions, Session, Stats, Text, Thinking
from engine.chat.prompt import Prompt
from engine.model.batch import Chunk, Trace, build_batch
from engine.runtime import Runtime, image_reader
from engine.scoring import ScorePrompt, score
from tests.support.oracle import OracleCase

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"
GREEDY = ReplyOptions(temperature=0.0)


def prompt_of(case: OracleCase, greedy: bool = False) -> ScorePrompt:
    """The oracle's prompt as scoring reads it."""
    lengths = case.prefix_lengths if greedy else []
    return ScorePrompt(case.input_ids.tolist(), case.image_paths, lengths, 16)


def scored(runtime: Runtime, case: OracleCase, chunk_tokens: int, greedy: bool = False) -> dict[str, Tensor]:
    """All tensors of the case's prompt under the oracle's names."""
    return score(runtime, prompt_of(case, greedy), chunk_tokens)


@dataclass
class Reading:
    """One prompt being read through the transformer by hand, to choose how it is cut."""

    runtime: Runtime
    prompt: Prompt
    features: dict[str, Tensor]

    def __post_init__(self) -> None:
        sequence = self.runtime.cache.open()
        assert sequence is not None
        self.sequence = sequence

    def chunk(self, stop: int, want: str = "all") -> Chunk:
        """The tokens from where the sequence is up to `stop`."""
        start, prompt = self.sequence.length, self.prompt
        assert self.runtime.cache.reserve(self.sequence, stop)
        rows, values = [], []
        for span in prompt.spans:
            a, b = max(span.start, start), min(span.start + span.length, stop)
            if a < b:
                rows.append(torch.arange(a - start, b - start))
                values.append(self.features[span.image.digest][a - span.start : b - span.start])
        pictures = (torch.cat(rows), torch.cat(values)) if rows else None
        is_image = prompt.is_image(start, stop) if prompt.spans else None
        ids = torch.tensor(prompt.ids[start:stop])
        return Chunk(self.sequence, ids, prompt.rope_positions[:, start:stop], is_image, pictures, want)

    def read(self, stop: int) -> Tensor:
        """Logits [tokens read, vocab]."""
        return step([(self, stop)])

    def close(self) -> None:
        self.runtime.cache.close(self.sequence)


def step(readings: Iterable[tuple[Reading, int]], trace: Trace | None = None) -> Tensor:
    """One forward pass over several readings at once; logits of all their rows."""
    pairs = list(readings)
    runtime = pairs[0][0].runtime
    chunks = [reading.chunk(stop) for reading, stop in pairs]
    logits = runtime.model.transformer(build_batch(chunks, runtime.cache, trace))
    for reading, stop in pairs:
        reading.sequence.length = stop
    return logits


def reading_of(runtime: Runtime, case: OracleCase) -> Reading:
    """The case's prompt, pictures encoded, nothing read yet."""
    from engine.chat.prompt import layout_prompt
    from engine.vision.picture import open_picture

    reader = image_reader(runtime.described)
    starts, features = [], {}
    for path, info in zip(case.image_paths, case.info["images"], strict=True):
        assert reader is not None and runtime.model.vision is not None
        picture = reader.prepare(open_picture(path))
        starts.append((info["first_token"], picture))
        with torch.inference_mode():
            features[picture.digest] = runtime.model.vision(picture.pixels, picture.grid)
    return Reading(runtime, layout_prompt(case.input_ids.tolist(), starts, reader), features)


@dataclass
class Answer:
    """Everything one reply told."""

    events: list[Event] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, Text))

    @property
    def thinking(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, Thinking))

    @property
    def stats(self) -> Stats:
        return next(e for e in self.events if isinstance(e, Stats))

    @property
    def reason(self) -> str:
        last = self.events[-1]
        assert isinstance(last, Finished)
        return last.reason


def ask(session: Session, messages: list[Message], options: ReplyOptions | None = None) -> Answer:
    """Read a reply to its end."""
    return Answer(list(session.reply(messages, options or GREEDY)))


def user(text: str, *images: Any) -> Message:
    return Message("user", text, tuple(images))


def assistant(text: str) -> Message:
    return Message("assistant", text)


def check_cache(engine: Engine) -> None:
    """No page or row is lost; only meaningful while nothing is answering."""
    engine._runtime.cache.check_integrity()


# ---------------------------------------------------------------- damaging checkpoints


def copy_of(source: Path, target: Path) -> Path:
    """A private copy of a checkpoint; tensors are hard-linked until `rewrite_header` or `patch` replaces them."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.is_file():
            if file.suffix == ".safetensors":
                os.link(file, target / file.name)
            else:
                shutil.copyfile(file, target / file.name)
    return target


def own(path: Path) -> Path:
    """Replace a hard link by a copy, so that the original is not written to."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    return path


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """(header, offset of the data)."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), 8 + length


def write_file(path: Path, header: bytes | dict[str, Any], data: bytes = b"", length: int | None = None) -> Path:
    """A safetensors file with any header."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.unlink(missing_ok=True)
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + data)
    return path


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change the header of a file and keep its data."""
    header, offset = read_header(path)
    data = path.read_bytes()[offset:]
    change(header)
    return write_file(path, header, data)


def shard_with(directory: Path, name: str) -> Path:
    """The file that holds a tensor."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    return directory / index["weight_map"][name]


def patch(directory: Path, name: str, at: int, value: bytes) -> Path:
    """Overwrite bytes of one tensor."""
    path = own(shard_with(directory, name))
    header, offset = read_header(path)
    begin, _ = header[name]["data_offsets"]
    with path.open("r+b") as file:
        file.seek(offset + begin + at)
        file.write(value)
    return path


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def is_one_sentence(error: EngineError) -> bool:
    """Written for a person: starts like a sentence, ends like one, one line, no traceback words."""
    text = str(error)
    return bool(text) and "\n" not in text and text.endswith(".") and "Error" not in text and "Traceback" not in text
