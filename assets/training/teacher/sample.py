"""Stage: let the teacher write. Several runs with different seeds add up.

    python -m assets.training.teacher.sample TEACHER.gguf WORK --seconds 420 --seed 1 --out WORK/shard1

Writes OUT.N.jsonl.xz, one conversation per line as [question, answer, question, answer, ...], at most 15 MiB each: those that
`chats.filter` keeps. Makers (processes) prepare scripts and decode what was written, one writer filters, so the GPU never
waits for Python.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import multiprocessing as mp
import random
import re
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from assets.training.chats.filter import Filter
from assets.training.chats.mix import Chat
from assets.training.teacher.gguf import read_gguf, tokenizer_of
from assets.training.teacher.llama import FIRST, NEW, WRITE, WRITTEN, Scribe, Teacher, TeacherShape
from assets.training.teacher.prompts import Asked, Prompts

END, START = "<|im_end|>", "<|im_start|>"
_SHARD_BYTES = 15 << 20
_SHORTEST = 32  # tokens that a conversation has at least before anything is written


class Scripts:
    """Conversations as scripts, in arrays. Fixed texts are encoded once, first questions all at a time."""

    def __init__(self, tokenizer: Tokenizer, prompts: Prompts, size: int) -> None:
        self.tokenizer, self.prompts, self.size = tokenizer, prompts, size
        self._known: dict[str, list[int]] = {}

    def _fixed(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return self._known[text]

    def tokens(self, asked: Asked, first: list[int]) -> list[int]:
        """NEW, the system turn, then per question its tokens and WRITE; `first` are those of the first question."""
        made = [NEW, *self._fixed(f"{START}system\n{asked.system}{END}\n"), *first, WRITE]
        for question in asked.questions[1:]:
            made += [*self._fixed(f"\n{_turn(question)}"), WRITE]
        return made

    def batch(self, rows: int) -> tuple[np.ndarray, list[list[Asked]]]:
        """Scripts int32 [rows, size], and what each row asks in its order."""
        each = self.size // _SHORTEST + 1
        asked = [[self.prompts.make() for _ in range(each)] for _ in range(rows)]
        texts = [_turn(a.questions[0]) for row in asked for a in row]
        firsts = iter(self.tokenizer.encode_batch(texts, add_special_tokens=False))
        made = np.empty((rows, self.size), np.int32)
        for number, row in enumerate(asked):
            script = [t for a in row for t in self.tokens(a, next(firsts).ids)]
            assert len(script) >= self.size, "a row has too little to ask"
            made[number] = script[: self.size]
        return made, asked


def _turn(question: str) -> str:
    return f"{START}user\n{question}{END}\n{START}assistant\n"


def conversations(
    tokens: np.ndarray, kinds: np.ndarray, asked: list[Asked], end: int
) -> Iterator[tuple[Asked, list[list[int]], bool]]:
    """Conversations of one row: what was asked, the tokens of each answer, and whether the last of them is a torso.

    The last conversation of a row is cut off by the end of the round and left out.
    """
    starts = np.flatnonzero(kinds == FIRST)
    for number, (first, last) in enumerate(itertools.pairwise(starts)):
        kind, token = kinds[first:last], tokens[first:last]
        written = np.flatnonzero(kind == WRITTEN)
        answers: list[list[int]] = []
        torso = False
        for run in np.split(written, np.flatnonzero(np.diff(written) > 1) + 1):
            torso = len(run) > 0 and token[run[-1]] != end
            if len(run) == 0:
                break
            answers.append(token[run if torso else run[:-1]].tolist())
            if torso:  # too long: everything after it was answered to a torso
                break
        yield asked[number], answers, torso


_SENTENCE_END = re.compile(r"[a-z)\"'][.!?](?=\s)")
# What a keyboard has for them.
_PLAIN = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": " - "})
_PLAIN |= str.maketrans({"\u2026": "...", "\u00a0": " ", "\u00e9": "e"})


def whole_sentences(text: str) -> str:
    """A torso up to its last finished sentence; empty if there is none of use."""
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[-1]] if ends and ends[-1] >= 60 else ""


class Maker:
    """Prepares scripts and turns finished rounds into chats; lives in a process of its own."""

    def __init__(self, tokenizer: Tokenizer, words: dict[str, list[str]], size: int, seed: int) -> None:
        self.scripts = Scripts(tokenizer, Prompts(random.Random(seed), words), size)
        self.end = tokenizer.token_to_id(END)

    def chats(self, tokens: np.ndarray, kinds: np.ndarray, asked: list[list[Asked]]) -> Iterator[Chat]:
        rows = range(len(tokens))
        found = [c for r in rows for c in conversations(tokens[r], kinds[r], asked[r], self.end)]
        texts = iter(self.scripts.tokenizer.decode_batch([a for _, answers, _ in found for a in answers]))
        for question, answers, torso in found:
            said = [next(texts).translate(_PLAIN).strip() for _ in answers]
            if torso:
                said[-1] = whole_sentences(said[-1])
            pairs = zip(question.questions, said, strict=False)
            if chat := [text for pair in pairs if pair[1] for text in pair]:
                yield chat

    def serve(self, rows: int, line: Connection, written: Any) -> None:
        """A batch of scripts for every round received, until None comes; chats go to the writer."""
        batch, asked = self.scripts.batch(rows)
        line.send(batch)
        while (done := line.recv()) is not None:
            before = asked
            batch, asked = self.scripts.batch(rows)  # first, because the GPU may soon ask for it
            line.send(batch)
            written.put(list(self.chats(*done, before)))
        written.put(None)


def write_shards(rounds: Iterable[list[Chat]], out: Path) -> tuple[int, Filter]:
    """Filters and writes; a shard is closed before it becomes too large to travel. (chats kept, what the filter saw)"""
    out.parent.mkdir(parents=True, exist_ok=True)
    chosen, kept, shard = Filter(), 0, 0
    good = filter(None, (chosen.keep(chat) for chats in rounds for chat in chats))
    chat = next(good, None)
    while chat is not None:
        path, shard = out.with_name(f"{out.name}.{shard}.jsonl.xz"), shard + 1
        with path.open("wb") as raw, lzma.open(raw, "wt", encoding="utf-8", preset=3) as file:
            while chat is not None and raw.tell() < _SHARD_BYTES - (1 << 18):
                file.write(json.dumps(chat) + "\n")
                kept, chat = kept + 1, next(good, None)
    return kept, chosen


def _writer(written: Any, makers: int, out: Path) -> None:
    """The process that writes; ends when every maker has."""
    characters = 0

    def rounds() -> Iterator[list[Chat]]:
        nonlocal characters
        left = makers
        while left:
            chats = written.get()
            left -= chats is None
            characters += sum(len(t) for chat in chats or () for t in chat)
            yield chats or []

    kept, chosen = write_shards(rounds(), out)
    print(
        f"kept {kept:,} chats; {characters / 1e6:.0f} M characters were written; dropped turns: {dict(chosen.dropped)}"
    )


def write_rounds(scribe: Scribe, lines: list[Connection], seconds: float, generator: torch.Generator) -> int:
    """Rounds until the time is over, each with the scripts of the next maker in turn. Returns their number."""
    deadline = time.monotonic() + seconds
    for count, line in enumerate(itertools.cycle(lines), 1):
        temperature = torch.tensor([0.4, 0.6, 0.8])[torch.randint(3, (scribe.rows,), generator=generator)]
        tokens, kinds = scribe.round(torch.from_numpy(line.recv()), temperature)
        line.send((tokens.int().numpy(), kinds.to(torch.uint8).numpy()))
        if time.monotonic() > deadline:
            return count
    raise AssertionError("no makers")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.teacher.sample", description=__doc__)
    parser.add_argument("teacher", type=Path, help="GGUF file, Llama architecture")
    parser.add_argument("work", type=Path, help="words.json of the sources stage is read from here")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--length", type=int, default=640)
    parser.add_argument("--most", type=int, default=110, help="tokens of one answer")
    parser.add_argument("--makers", type=int, default=4, help="processes beside the one that runs the model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    wishes = parser.parse_args(arguments)
    torch.manual_seed(wishes.seed)
    file = read_gguf(wishes.teacher)
    tokenizer = tokenizer_of(file.fields)
    words = wishes.work / "words.json"
    known = json.loads(words.read_text()) if words.exists() else {}
    context = mp.get_context("fork")  # before anything touches the GPU
    written, lines, helpers = context.Queue(), [], []
    for number in range(wishes.makers):
        maker = Maker(tokenizer, known, wishes.length + 64, 1000 * wishes.seed + number)
        own, other = context.Pipe()
        lines.append(own)
        helpers.append(context.Process(target=maker.serve, args=(wishes.rows, other, written), daemon=True))
    helpers.append(context.Process(target=_writer, args=(written, wishes.makers, wishes.out)))
    for helper in helpers:
        helper.start()
    teacher = Teacher(TeacherShape.of(file.fields), file.tensors, wishes.device)
    scribe = Scribe(teacher, wishes.rows, wishes.length, tokenizer.token_to_id(END), wishes.most)
    begun = time.monotonic()
    count = write_rounds(scribe, lines, wishes.seconds, torch.Generator().manual_seed(wishes.seed))
    spent = time.monotonic() - begun
    print(
        f"{count} rounds, {count * wishes.rows * wishes.length / spent:,.0f} tokens a second for {spent:.0f} s",
        flush=True,
    )
    for line in lines:
        line.send(None)
    for line in lines:
        line.recv()  # the batch nobody needs any more, so that the maker can end
    for helper in helpers:
        helper.join()


if __name__ == "__main__":
    main()
