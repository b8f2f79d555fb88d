"""From messages to the token sequence the model reads: template, neutralised text, image spans, rope positions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor

from engine.chat.style import ChatStyle, EncodeOptions
from engine.chat.template import ChatTemplate
from engine.chat.tokens import Tokens
from engine.errors import BadCheckpoint, BadRequest
from engine.messages import Message
from engine.vision.picture import open_picture
from engine.vision.reader import ImageReader, PreparedImage


@dataclass(frozen=True, eq=False)
class ImageSpan:
    """Where a picture's tokens lie in the prompt."""

    start: int
    length: int
    image: PreparedImage


@dataclass(frozen=True, eq=False)
class Prompt:
    """A token sequence. rope_positions int64 [3, T]; the first generated token gets position `next_position`."""

    ids: list[int]
    spans: tuple[ImageSpan, ...]
    rope_positions: Tensor
    next_position: int
    opens_thinking: bool = False
    continued_tokens: int = 0  # at the end: the beginning of the answer that goes on

    def __len__(self) -> int:
        return len(self.ids)

    def is_image(self, start: int, stop: int) -> Tensor | None:
        """bool [stop - start], which tokens belong to pictures; None if none does."""
        mask = torch.zeros(stop - start, dtype=torch.bool)
        for span in self.spans:
            mask[max(span.start - start, 0) : max(span.start + span.length - start, 0)] = True
        return mask if bool(mask.any()) else None

    def picture_rows(
        self, start: int, stop: int, features: Callable[[ImageSpan], Tensor]
    ) -> tuple[Tensor, Tensor] | None:
        """Embeddings of the picture tokens in start..stop: rows relative to start int64 [m], values [m, H]; None if none."""
        rows, values = [], []
        for span in self.spans:
            a, b = max(span.start, start), min(span.start + span.length, stop)
            if a < b:
                rows.append(torch.arange(a - start, b - start))
                values.append(features(span)[a - span.start : b - span.start])
        return (torch.cat(rows), torch.cat(values)) if rows else None

    def end_of_picture(self, stop: int) -> int:
        """`stop`, or the end of the picture that a cut there would part."""
        return next((s.start + s.length for s in self.spans if s.start < stop < s.start + s.length), stop)

    def common_prefix(self, other: Prompt) -> int:
        """How many leading tokens are the same, pictures compared by content."""
        same = next((i for i, (a, b) in enumerate(zip(self.ids, other.ids, strict=False)) if a != b), None)
        length = min(len(self), len(other)) if same is None else same
        theirs = {span.start: span for span in other.spans}
        for span in self.spans:
            if span.start < length:
                match = theirs.get(span.start)
                if match is None or match.image.digest != span.image.digest:
                    return span.start
        return length


def layout_prompt(
    ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]], reader: ImageReader | None
) -> Prompt:
    """Prompt from final ids; `images` gives the first token of each picture."""
    positions: list[Tensor] = []
    spans: list[ImageSpan] = []
    cursor, place = 0, 0
    for start, image in images:
        assert reader is not None
        length = len(reader.token_ids(image.grid))
        positions.append(torch.arange(place, place + start - cursor).expand(3, -1))
        block, place = reader.positions(image.grid, place + start - cursor)
        positions.append(block)
        spans.append(ImageSpan(start, length, image))
        cursor = start + length
    rest = len(ids) - cursor
    positions.append(torch.arange(place, place + rest).expand(3, -1))
    return Prompt(list(ids), tuple(spans), torch.cat(positions, dim=1), place + rest)


class PromptBuilder:
    """Encodes conversations for one model. Stateless; prepared pictures are the caller's to cache."""

    def __init__(
        self,
        tokens: Tokens,
        style: ChatStyle,
        template: ChatTemplate | None,
        reader: ImageReader | None,
        image_token: int | None,
    ) -> None:
        if template is None and style.encode is None:
            raise BadCheckpoint("The checkpoint has no chat template, and its family has no encoder of its own.")
        self._tokens, self._style, self._template, self._reader = tokens, style, template, reader
        self._placeholder = tokens.text_of(image_token) or style.image
        self.think_open, self.think_close = tokens.id_of(style.think_open), tokens.id_of(style.think_close)
        reserved = sorted({*tokens.added, *([self._placeholder] if self._placeholder else [])}, key=len, reverse=True)
        self._reserved = re.compile("|".join(re.escape(text) for text in reserved)) if reserved else None

    @property
    def thinks(self) -> bool:
        """Whether this model has a thinking mode."""
        return self.think_close is not None

    def build(
        self,
        messages: Sequence[Message],
        options: EncodeOptions,
        known_answers: Mapping[str, list[int]],
        prepare: PrepareImage | None = None,
    ) -> Prompt:
        """Encode the whole conversation up to the start of the next answer.

        known_answers gives the exact ids of answers the model wrote, so that re-reading them hits the cache even
        where the tokenizer would cut the text differently. Raises BadRequest and BadImage.
        """
        self._check(messages)
        images = [(prepare or self.prepare)(image.source) for message in messages for image in message.images]
        marks = _Marks(messages)
        safe = [self._neutral(message, marks, known_answers) for message in messages]
        text = self._template.render(safe, options) if self._template else self._style.encode(safe, options)  # type: ignore[misc]
        ids, starts = self._encode(text, marks, images)
        if len(starts) != len(images):
            raise BadRequest(
                f"The model's chat template has room for {len(starts)} of the {len(images)} pictures in this conversation."
            )
        prompt = layout_prompt(ids, list(zip(starts, images, strict=True)), self._reader)
        opens = self.think_open is not None and self.think_open in ids[-3:] and self.think_close not in ids[-3:]
        return replace(prompt, opens_thinking=opens)

    def build_continued(
        self,
        messages: Sequence[Message],
        options: EncodeOptions,
        known_answers: Mapping[str, list[int]],
        prepare: PrepareImage | None = None,
    ) -> Prompt:
        """Encode up to the end of the last message, an answer that broke off: no end marker, no new turn."""
        if not messages or messages[-1].role != "assistant" or not messages[-1].text:
            raise BadRequest("There is no answer to continue.")
        text = messages[-1].text
        prompt = self.build(messages[:-1], options, known_answers, prepare)
        if messages[-1].thinking or prompt.opens_thinking:
            raise BadRequest("An answer of a model that thinks first cannot be continued; ask for it again.")
        ids = known_answers[text] if text in known_answers else self._tokens.encode_plain(text)
        more = torch.arange(prompt.next_position, prompt.next_position + len(ids)).expand(3, -1)
        return replace(
            prompt,
            ids=[*prompt.ids, *ids],
            rope_positions=torch.cat([prompt.rope_positions, more], dim=1),
            next_position=prompt.next_position + len(ids),
            continued_tokens=len(ids),
        )

    def prepare(self, source: object) -> PreparedImage:
        """Decode and preprocess one picture."""
        if self._reader is None:
            raise BadRequest("This model reads text only; remove the picture or choose a model that sees.")
        return self._reader.prepare(open_picture(source))  # type: ignore[arg-type]

    def _check(self, messages: Sequence[Message]) -> None:
        if not messages:
            raise BadRequest("There is no message to answer.")
        if messages[-1].role != "user":
            raise BadRequest("The last message must be the user's.")
        for message in messages:
            if message.role not in ("system", "user", "assistant"):
                raise BadRequest(f"A message has the unknown role {message.role!r}.")
            if message.images and message.role != "user":
                raise BadRequest("Only user messages can carry pictures.")
        last = messages[-1]
        if not last.text.strip() and not last.images:
            raise BadRequest("The message is empty.")
        if self._reader is None and any(message.images for message in messages):
            raise BadRequest("This model reads text only; remove the picture or choose a model that sees.")

    def _neutral(self, message: Message, marks: _Marks, known_answers: Mapping[str, list[int]]) -> Message:
        """Hide strings that would be read as special tokens, and answers whose ids are known, behind marks."""
        if message.role == "assistant" and message.text in known_answers:
            return replace(
                message, text=marks.hide_ids(known_answers[message.text]), thinking=self._hide(message.thinking, marks)
            )
        return replace(message, text=self._hide(message.text, marks), thinking=self._hide(message.thinking, marks))

    def _hide(self, text: str, marks: _Marks) -> str:
        if self._reserved is None:
            return text
        return self._reserved.sub(lambda found: marks.hide_ids(self._tokens.encode_plain(found.group())), text)

    def _encode(self, text: str, marks: _Marks, images: Sequence[PreparedImage]) -> tuple[list[int], list[int]]:
        pattern = marks.pattern + (f"|({re.escape(self._placeholder)})" if self._placeholder else "")
        ids: list[int] = []
        starts: list[int] = []
        cursor = 0
        for found in re.finditer(pattern, text):
            ids += self._tokens.encode(text[cursor : found.start()])
            cursor = found.end()
            if found.group(1) is not None:
                ids += marks.hidden[int(found.group(1))]
            elif len(starts) < len(images):
                assert self._reader is not None
                ids += self._reader.padding_ids(len(ids))
                starts.append(len(ids))
                ids += self._reader.token_ids(images[len(starts) - 1].grid)
            else:
                starts.append(len(ids))
        ids += self._tokens.encode(text[cursor:])
        return ids, starts


class _Marks:
    """Private-use characters that stand for finished ids while a template is rendered; chosen so that no text has them."""

    def __init__(self, messages: Sequence[Message]) -> None:
        everything = "".join(message.text + message.thinking for message in messages)
        free = (chr(0xE000 + i) for i in count() if chr(0xE000 + i) not in everything)
        self._open, self._close = next(free), next(free)
        self.pattern = f"{self._open}(\\d+){self._close}"
        self.hidden: list[list[int]] = []

    def hide_ids(self, ids: list[int]) -> str:
        self.hidden.append(ids)
        return f"{self._open}{len(self.hidden) - 1}{self._close}"


class PrepareImage:
    """Prepares pictures through a cache keyed by the file's bytes, so a conversation decodes each picture once."""

    def __init__(self, builder: PromptBuilder, limit: int = 64) -> None:
        self._builder, self._limit = builder, limit
        self._cache: dict[object, PreparedImage] = {}
        self._lock = threading.Lock()

    def __call__(self, source: object) -> PreparedImage:
        key = _source_key(source)
        prepared = self._cache.get(key)
        if prepared is None:
            prepared = self._builder.prepare(source)
            with self._lock:  # replies are prepared on their callers' threads
                self._cache[key] = prepared
                while len(self._cache) > self._limit:
                    self._cache.pop(next(iter(self._cache)))
        return prepared


def _source_key(source: object) -> object:
    """Identity of a picture's source: bytes by content, files by path, size and time of change."""
    try:
        stat = source.stat()  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return source
    return str(source), stat.st_size, stat.st_mtime_ns
