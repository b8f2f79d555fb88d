"""Stage: keep the teacher's good chats and split them by their first question.

    python -m assets.training.chats.filter WORK SHARD...      writes WORK/chats.jsonl.gz and WORK/held_chats.jsonl.gz
    ... --only-split                                          the shards of one run of the sampler are filtered already

Chats of a prompt are all in one of the two files: a prompt that was trained on says nothing about new ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from assets.training.chats.mix import Chat, read_chats

HELD_SHARE = 64  # one prompt in so many is held out
_BAD = re.compile(
    r"Hugging|SmolLM|language (AI|model)|AI assistant|as an AI|http|```|\bPython\b|\bdef |import |\*\*|<\||"
    r"I'm sorry for (any|the) |Translate|\bblog\b|SEO|\[(your|name|insert)|culinary assistant",
    re.IGNORECASE,
)


def repeats(text: str) -> bool:
    """Whether an answer goes round in circles: many equal four-word pieces or few different words."""
    words = text.lower().split()
    if len(words) < 8:
        return False
    pieces = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return len(set(pieces)) < 0.86 * len(pieces) or len(set(words)) < 0.42 * len(words)


class Filter:
    """Keeps state over all shards: how often a prompt or an answer was seen. `dropped` counts reasons."""

    def __init__(self, most_per_prompt: int = 12) -> None:
        self.most_per_prompt = most_per_prompt
        self.prompts: Counter[str] = Counter()
        self.answers: set[int] = set()
        self.dropped: Counter[str] = Counter()

    def keep(self, chat: Chat) -> Chat:
        """The good turns at the start of a chat; empty if there is none."""
        good: Chat = []
        for number in range(0, len(chat) - 1, 2):
            question, answer = chat[number].strip(), chat[number + 1].strip()
            reason = self._fault(question, answer, good)
            if reason:
                self.dropped[reason] += 1
                break
            good += [question, answer]
        if good:
            self.prompts[good[0]] += 1
            self.answers.update(zlib.crc32(a.encode()) for a in good[1::2] if len(a) > 60)
        return good

    def _fault(self, question: str, answer: str, before: Chat) -> str | None:
        """Why a turn ends the chat, or None."""
        rules = {
            "length": not question or not answer or len(question) > (140 if before else 220) or len(answer) > 520,
            "not ascii": not (question + answer).isascii(),
            "boilerplate": bool(_BAD.search(f"{question} {answer}")),
            "repetition": repeats(answer),
            "echo": question.lower() == answer.lower()
            or (len(question) > 15 and answer.lower().startswith(question.lower()[:40])),
            "said before": question in before or answer in before or zlib.crc32(answer.encode()) in self.answers,
            "unfinished": answer[-1:] not in ".!?\"')",
            "question mark": not before and question[-1:] not in "?.!",
            "prompt too often": not before and self.prompts[question] >= self.most_per_prompt,
        }
        return next((name for name, broken in rules.items() if broken), None)


def is_held(chat: Chat) -> bool:
    """Decided by the first question alone, the same in every run."""
    return zlib.crc32(chat[0].lower().encode()) % HELD_SHARE == 0


def write_chats(path: Path, chats: Iterable[Chat]) -> int:
    count = 0
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for chat in chats:
            file.write(json.dumps(chat) + "\n")
            count += 1
    return count


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.chats.filter", description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("shards", type=Path, nargs="+")
    parser.add_argument("--only-split", action="store_true", help="keep everything")
    wishes = parser.parse_args(arguments)
    chosen, seen = Filter(), 0
    kept: list[Chat] = []
    for shard in wishes.shards:
        for chat in read_chats(shard):
            seen += 1
            if good := chat if wishes.only_split else chosen.keep(chat):
                kept.append(good)
    held = [c for c in kept if is_held(c)]
    train = [c for c in kept if not is_held(c)]
    wishes.work.mkdir(parents=True, exist_ok=True)
    write_chats(wishes.work / "held_chats.jsonl.gz", held)
    write_chats(wishes.work / "chats.jsonl.gz", train)
    characters = sum(len(t) for c in kept for t in c)
    print(f"{seen:,} chats, kept {len(train):,} + {len(held):,} held out, {characters / 1e6:.1f} M characters")
    print("dropped:", dict(chosen.dropped.most_common()))


if __name__ == "__main__":
    main()
