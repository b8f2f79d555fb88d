"""The checkpoint's tokenizer: text to ids and back, with and without reading special tokens in the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.errors import BadCheckpoint


class Tokens:
    """Wraps tokenizer.json. Added tokens (special or not) are strings that mean one id wherever they occur."""

    def __init__(self, path: Path) -> None:
        try:
            content: dict[str, Any] = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
            self._full = Tokenizer.from_str(json.dumps(content))
            # Without its added tokens the same vocabulary reads every string as plain text.
            self._plain = Tokenizer.from_str(json.dumps({**content, "added_tokens": [], "post_processor": None}))
        except OSError as problem:
            raise BadCheckpoint(f"Cannot read tokenizer.json in {path}: {problem.strerror}.") from problem
        except Exception as problem:  # the tokenizers library raises bare Exception
            raise BadCheckpoint(f"tokenizer.json in {path} cannot be used: {problem}.") from problem
        self.added = {token["content"]: int(token["id"]) for token in content.get("added_tokens", [])}
        self._marks = set(self.added.values())
        self.vocab_size = self._full.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of template text: added tokens are recognised; nothing is put before or behind."""
        return self._full.encode(text, add_special_tokens=False).ids

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a person's text: strings that look like added tokens stay text."""
        ids = self._plain.encode(text, add_special_tokens=False).ids
        if len(text) > 1 and not self._marks.isdisjoint(ids):  # the vocabulary holds the mark itself as a word
            middle = len(text) // 2
            return self.encode_plain(text[:middle]) + self.encode_plain(text[middle:])
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of generated ids; special tokens are left out."""
        return self._full.decode(ids, skip_special_tokens=True)

    def id_of(self, token: str | None) -> int | None:
        return None if token is None else self.added.get(token)

    def text_of(self, token_id: int | None) -> str | None:
        """The added token with this id."""
        return next((text for text, number in self.added.items() if number == token_id), None)
