"""The door for comparisons with a reference: runs a fixed prompt and writes what every layer decided.

Tensor names: logits [T, V], final_hidden [T, H], topk.L [T, K], router.L.ids and .weights [T, k], layer_out.L,
greedy.N.ids and .logits, and for prompts with pictures pixel_values, image_grid_thw, image_features, position_ids,
position_delta.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.cache.cache import CachedSequence
from engine.chat.prompt import Prompt, layout_prompt
from engine.checkpoint.writer import write_tensors
from engine.errors import BadRequest, PromptTooLong
from engine.model.batch import Chunk, Trace, build_batch
from engine.model.spec import RopeVision
from engine.runtime import Runtime, image_reader, open_runtime
from engine.settings import EngineSettings
from engine.vision.picture import open_picture
from engine.vision.reader import PreparedImage


@dataclass(frozen=True)
class ScorePrompt:
    """Token ids with pictures already laid out, and which prefixes to continue greedily."""

    input_ids: list[int]
    images: list[Path] = field(default_factory=list)
    greedy_lengths: list[int] = field(default_factory=list)
    greedy_steps: int = 16


def read_prompt(path: Path) -> ScorePrompt:
    """Read PROMPT.json; image paths are relative to it. Raises BadRequest."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        ids = [int(i) for i in content["input_ids"]]
        images = [path.parent / str(name) for name in content.get("images", [])]
        lengths = [int(n) for n in content.get("greedy_lengths", [])]
        steps = int(content.get("greedy_steps", 16))
    except OSError as problem:
        raise BadRequest(f"Cannot read {path}: {problem.strerror}.") from problem
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise BadRequest(
            f"{path} is not a prompt with input_ids, images, greedy_lengths and greedy_steps."
        ) from problem
    if not ids or min(ids) < 0 or any(n < 1 or n > len(ids) for n in lengths) or steps < 1:
        raise BadRequest(f"{path} has no input_ids, negative ids, or greedy_lengths beyond the prompt.")
    return ScorePrompt(ids, images, lengths, steps)


def score_file(model_path: Path, prompt: Path, out: Path, settings: EngineSettings | None = None) -> None:
    """Score PROMPT.json with a checkpoint and write a safetensors file. Raises EngineError kinds."""
    settings = settings or EngineSettings()
    asked = read_prompt(prompt)
    needed = 2 * (len(asked.input_ids) + asked.greedy_steps + 64)
    runtime = open_runtime(model_path, replace(settings, cache_tokens=settings.cache_tokens or needed))
    write_tensors(out, score(runtime, asked, runtime.described.plan.prefill_chunk_tokens))


@torch.inference_mode()
def score(runtime: Runtime, asked: ScorePrompt, chunk_tokens: int) -> dict[str, Tensor]:
    """All tensors of one prompt, on the CPU."""
    spec = runtime.described.spec
    pseudo_ids = (
        8 if isinstance(spec.vision, RopeVision) else 0
    )  # that family gives its image positions ids of their own
    if max(asked.input_ids) >= spec.vocab + pseudo_ids:
        raise BadRequest(f"input_ids holds {max(asked.input_ids)}, beyond the vocabulary.")
    if len(asked.input_ids) + asked.greedy_steps > runtime.cache.capacity_tokens:
        raise PromptTooLong(f"The prompt has {len(asked.input_ids)} tokens, more than the cache holds.")
    reader = image_reader(runtime.described)
    if asked.images and reader is None:
        raise BadRequest("The prompt has images, but this model reads text only.")
    pictures = [reader.prepare(open_picture(path)) for path in asked.images] if reader is not None else []
    prompt = layout_prompt(asked.input_ids, _image_starts(runtime, asked, pictures), reader)
    features = _features(runtime, pictures)
    trace = Trace()
    logits = _read(runtime, prompt, features, len(prompt), chunk_tokens, "all", trace)
    tensors: dict[str, Tensor] = {
        "input_ids": torch.tensor(asked.input_ids),
        "logits": logits,
        "final_hidden": torch.cat(trace.final_hidden),
        **_decisions(trace),
    }
    if pictures:
        tensors["pixel_values"] = torch.cat([p.pixels for p in pictures])
        tensors["image_grid_thw"] = torch.tensor([[1, *p.grid] for p in pictures])
        tensors["image_features"] = torch.cat([features[p.digest] for p in pictures])
        tensors["position_ids"] = prompt.rope_positions
        tensors["position_delta"] = torch.tensor([prompt.next_position - len(prompt)])
    for length in asked.greedy_lengths:
        ids, steps = _greedy(runtime, prompt, features, length, asked.greedy_steps, chunk_tokens)
        tensors[f"greedy.{length}.ids"], tensors[f"greedy.{length}.logits"] = ids, steps
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def _image_starts(
    runtime: Runtime, asked: ScorePrompt, pictures: list[PreparedImage]
) -> list[tuple[int, PreparedImage]]:
    reader, cursor, starts = image_reader(runtime.described), 0, []
    for picture in pictures:
        assert reader is not None
        wanted = reader.token_ids(picture.grid)
        try:
            start = next(
                i for i in range(cursor, len(asked.input_ids)) if asked.input_ids[i : i + len(wanted)] == wanted
            )
        except StopIteration:
            raise BadRequest(f"input_ids has no place for a picture of {len(wanted)} tokens.") from None
        starts.append((start, picture))
        cursor = start + len(wanted)
    return starts


def _features(runtime: Runtime, pictures: list[PreparedImage]) -> dict[str, Tensor]:
    encoder = runtime.model.vision
    if not pictures:
        return {}
    assert encoder is not None
    return {p.digest: encoder(p.pixels.to(runtime.cache.device), p.grid) for p in pictures}


def _decisions(trace: Trace) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for layer, parts in trace.topk.items():
        width = max(part.shape[1] for part in parts)
        tensors[f"topk.{layer}"] = torch.cat(
            [torch.nn.functional.pad(part, (0, width - part.shape[1]), value=-1) for part in parts]
        ).to(torch.int32)
    for layer, pairs in trace.router.items():
        ids = torch.cat([ids for ids, _ in pairs])
        order = ids.argsort(-1)
        tensors[f"router.{layer}.ids"] = ids.gather(-1, order).to(torch.int32)
        tensors[f"router.{layer}.weights"] = torch.cat([w for _, w in pairs]).gather(-1, order)
    return tensors


def _read(
    runtime: Runtime,
    prompt: Prompt,
    features: dict[str, Tensor],
    stop: int,
    chunk_tokens: int,
    want: str,
    trace: Trace | None = None,
    sequence: CachedSequence | None = None,
) -> Tensor:
    """Prefill the first `stop` tokens in chunks; logits of all rows or of the last one."""
    own = sequence or _opened(runtime)
    parts: list[Tensor] = []
    start = 0
    while start < stop:
        end = min(stop, start + chunk_tokens)
        if runtime.described.spec.whole_pictures:
            end = prompt.end_of_picture(end)
        if not runtime.cache.reserve(own, end):
            raise PromptTooLong("The cache is too small for this prompt.")
        chunk = Chunk(
            own,
            torch.tensor(prompt.ids[start:end]),
            prompt.rope_positions[:, start:end],
            prompt.is_image(start, end) if prompt.spans else None,
            prompt.picture_rows(start, end, lambda span: features[span.image.digest]),
            "all" if want == "all" else ("last" if end == stop else "none"),
        )
        parts.append(runtime.model.transformer(build_batch([chunk], runtime.cache, trace)))
        own.length = start = end
    if sequence is None:
        runtime.cache.close(own)
    return torch.cat(parts)


def _greedy(
    runtime: Runtime, prompt: Prompt, features: dict[str, Tensor], length: int, steps: int, chunk_tokens: int
) -> tuple[Tensor, Tensor]:
    """argmax continuation of the first `length` tokens: ids [steps] and their logits [steps, V]."""
    sequence = _opened(runtime)
    logits = [_read(runtime, prompt, features, length, chunk_tokens, "last", None, sequence)[-1]]
    ids = [int(logits[-1].argmax())]
    place = int(prompt.rope_positions[:, :length].max()) + 1
    while len(ids) < steps:
        offset = length + len(ids) - 1
        runtime.cache.reserve(sequence, offset + 1)
        chunk = Chunk(sequence, torch.tensor(ids[-1:]), torch.full((3, 1), place + len(ids) - 1))
        logits.append(runtime.model.transformer(build_batch([chunk], runtime.cache))[-1])
        sequence.length = offset + 1
        ids.append(int(logits[-1].argmax()))
    runtime.cache.close(sequence)
    return torch.tensor(ids), torch.stack(logits)


def _opened(runtime: Runtime) -> CachedSequence:
    sequence = runtime.cache.open()
    assert sequence is not None
    return sequence
