"""Stage: let the teacher write. Several runs with different seeds add up.

    python -m assets.training.teacher.sample TEACHER.gguf WORK --seconds 420 --seed 1 --out WORK/shard1

Writes OUT.N.jsonl.gz, one conversation per line as [question, answer, question, answer, ...], at most 15 MiB each.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

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

    def batch(self, rows: int) -> tuple[torch.Tensor, list[list[Asked]]]:
        """Scripts int64 [rows, size], and what each row asks in its order."""
        each = self.size // _SHORTEST + 1
        asked = [[self.prompts.make() for _ in range(each)] for _ in range(rows)]
        texts = [_turn(a.questions[0]) for row in asked for a in row]
        firsts = iter(self.tokenizer.encode_batch(texts, add_special_tokens=False))
        made = np.empty((rows, self.size), np.int64)
        for number, row in enumerate(asked):
            script = [t for a in row for t in self.tokens(a, next(firsts).ids)]
            assert len(script) >= self.size, "a row has too little to ask"
            made[number] = script[: self.size]
        return torch.from_numpy(made), asked


def _turn(question: str) -> str:
    return f"{START}user\n{question}{END}\n{START}assistant\n"


def conversations(
    tokens: np.ndarray, kinds: np.ndarray, asked: list[Asked], end: int
) -> Iterator[tuple[Asked, list[list[int]]]]:
    """Complete conversations of one row: what was asked, and the tokens of each finished answer.

    The last conversation of a row is cut off by the end of the round and left out.
    """
    starts = np.flatnonzero(kinds == FIRST)
    for number, (first, last) in enumerate(itertools.pairwise(starts)):
        kind, token = kinds[first:last], tokens[first:last]
        written = np.flatnonzero(kind == WRITTEN)
        answers: list[list[int]] = []
        for run in np.split(written, np.flatnonzero(np.diff(written) > 1) + 1):
            finished = len(run) > 0 and token[run[-1]] == end
            if not finished:  # too long: everything from here on was answered to a torso
                break
            answers.append(token[run[:-1]].tolist())
        yield asked[number], answers


def write_rounds(scribe: Scribe, scripts: Scripts, end: int, seconds: float, seed: int) -> Iterator[Chat]:
    """Chats until the time is over; the scripts of the next round are made while this one is written."""
    deadline = time.monotonic() + seconds
    generator = torch.Generator().manual_seed(seed)
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(scripts.batch, scribe.rows)
        while True:
            batch, asked = coming.result()
            coming = maker.submit(scripts.batch, scribe.rows)
            temperature = torch.tensor([0.4, 0.6, 0.8])[torch.randint(3, (scribe.rows,), generator=generator)]
            tokens, kinds = (t.numpy() for t in scribe.round(batch, temperature))
            found = [c for row in range(scribe.rows) for c in conversations(tokens[row], kinds[row], asked[row], end)]
            texts = iter(scripts.tokenizer.decode_batch([a for _, answers in found for a in answers]))
            for question, answers in found:
                pairs = zip(question.questions, [next(texts).strip() for _ in answers], strict=False)
                if chat := [text for pair in pairs for text in pair]:
                    yield chat
            if time.monotonic() > deadline:
                return


def write_shards(chats: Iterator[Chat], out: Path) -> tuple[int, int]:
    """(chats, characters) written; a shard is closed before it becomes too large to travel."""
    out.parent.mkdir(parents=True, exist_ok=True)
    count = characters = shard = 0
    chat = next(chats, None)
    while chat is not None:
        path, shard = out.with_name(f"{out.name}.{shard}.jsonl.gz"), shard + 1
        with path.open("wb") as raw, gzip.open(raw, "wt", encoding="utf-8", compresslevel=6) as file:
            while chat is not None and raw.tell() < _SHARD_BYTES - (1 << 18):
                file.write(json.dumps(chat) + "\n")
                count, characters = count + 1, characters + sum(map(len, chat))
                chat = next(chats, None)
    return count, characters


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.teacher.sample", description=__doc__)
    parser.add_argument("teacher", type=Path, help="GGUF file, Llama architecture")
    parser.add_argument("work", type=Path, help="words.json of the sources stage is read from here")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--length", type=int, default=768)
    parser.add_argument("--most", type=int, default=110, help="tokens of one answer")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    wishes = parser.parse_args(arguments)
    torch.manual_seed(wishes.seed)
    file = read_gguf(wishes.teacher)
    tokenizer = tokenizer_of(file.fields)
    teacher = Teacher(TeacherShape.of(file.fields), file.tensors, wishes.device)
    words = wishes.work / "words.json"
    prompts = Prompts(random.Random(wishes.seed), json.loads(words.read_text()) if words.exists() else {})
    scripts = Scripts(tokenizer, prompts, wishes.length + 64)
    end = tokenizer.token_to_id(END)
    scribe = Scribe(teacher, wishes.rows, wishes.length, end, wishes.most)
    begun = time.monotonic()
    count, characters = write_shards(write_rounds(scribe, scripts, end, wishes.seconds, wishes.seed), wishes.out)
    spent = time.monotonic() - begun
    print(f"{count:,} chats, {characters / 1e6:.1f} M characters in {spent:.0f} s", flush=True)


if __name__ == "__main__":
    main()
