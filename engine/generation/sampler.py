"""From logits to the next token ids: row by row on the CPU, all rows of a step at once on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import BadRequest, EngineError
from kernels.sampling import COLDEST, sample_tokens


@dataclass(frozen=True)
class Sampling:
    """Resolved options; temperature 0 is greedy. Filters apply in the order of the fields."""

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def check(self) -> None:
        """Raise BadRequest for values that make no sense."""
        if self.seed is not None and not -(1 << 63) <= self.seed < 1 << 63:
            raise BadRequest(f"seed is {self.seed}; it must be a 64-bit whole number.")
        limits = (
            ("temperature", self.temperature, 0.0, 100.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("top_k", self.top_k, 0, 1 << 30),
            ("repetition_penalty", self.repetition_penalty, 0.01, 100.0),
        )
        for name, value, low, high in limits:
            if not low <= value <= high:
                raise BadRequest(f"{name} is {value}; it must lie between {low} and {high}.")


class Sampler:
    """One request's sampler with its own random generator, so that a seed gives the same text in any batch.

    The generator is the host's; `device` is where logits are.
    """

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        self.options, self._device = sampling, device
        self._generator = torch.Generator()
        self._seen, self._marked = torch.empty(0, dtype=torch.bool, device=device), 0
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def numbers(self) -> list[float]:
        """This request's row for `sample_tokens`, with a fresh random draw."""
        o, uniform = self.options, float(torch.rand((), generator=self._generator))
        return [o.repetition_penalty, o.temperature, o.top_k, o.top_p, o.min_p, uniform]

    def seen(self, tokens: Sequence[int], vocab: int) -> Tensor:
        """Which ids the repetition penalty applies to, bool [vocab] on the device; `tokens` only ever grow."""
        if len(self._seen) != vocab:
            self._seen = torch.zeros(vocab, dtype=torch.bool, device=self._device)
        if self.options.repetition_penalty != 1.0:
            new = [t for t in tokens[self._marked :] if t < vocab]  # ids behind the vocabulary belong to pictures
            self._seen.index_fill_(0, _upload(torch.tensor(new, dtype=torch.int64), self._device), True)
            self._marked = len(tokens)
        return self._seen

    def __call__(self, logits: Tensor, seen: Tensor | None) -> int:
        """Next id from float32 logits [vocab] on the CPU; `seen` int64 [n] are ids the repetition penalty applies to."""
        options = self.options
        if options.repetition_penalty != 1.0 and seen is not None and seen.numel():
            logits = _penalised(logits, seen, options.repetition_penalty)
        if options.temperature < COLDEST:
            best = logits.max(-1)
            _require_number(best.values)
            return int(best.indices)
        scores, ids = (logits / options.temperature).sort(descending=True, stable=True)
        _require_number(scores[0])
        if options.top_k:
            scores, ids = scores[: options.top_k], ids[: options.top_k]
        chances = scores.softmax(-1)
        if options.top_p < 1.0:
            # The first id that reaches top_p still belongs; at least one stays.
            keep = max(int((chances.cumsum(-1) < options.top_p).sum()) + 1, 1)
            chances = chances[:keep]
        if options.min_p > 0.0:
            chances = chances[chances >= options.min_p * chances[0]]
        return int(ids[torch.multinomial(chances, 1, generator=self._generator)])


def next_tokens(logits: Tensor, rows: Sequence[tuple[Sampler, Sequence[int]]]) -> list[int | Exception]:
    """The next id of each row of float32 logits [rows, vocab], or what went wrong with it.

    rows: a request's sampler and its tokens so far. On a GPU one small copy brings all ids to the host.
    """
    if logits.device.type != "cpu":
        return sample_together(logits, rows)
    return [_sample_one(row, *request) for row, request in zip(logits, rows, strict=True)]


def _sample_one(logits: Tensor, sampler: Sampler, tokens: Sequence[int]) -> int | Exception:
    seen = None
    if sampler.options.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(t for t in set(tokens) if t < len(logits)), dtype=torch.int64)
    try:
        return sampler(logits, seen)
    except Exception as error:  # the other rows are not disturbed
        return error


def sample_together(logits: Tensor, rows: Sequence[tuple[Sampler, Sequence[int]]]) -> list[int | Exception]:
    """`next_tokens` for all rows at once, on any device."""
    if not rows:
        return []
    options = [sampler.options for sampler, _ in rows]
    numbers = _upload(torch.tensor([sampler.numbers() for sampler, _ in rows]), logits.device)
    seen = None
    if any(o.repetition_penalty != 1.0 for o in options):
        seen = torch.stack([sampler.seen(tokens, logits.shape[1]) for sampler, tokens in rows])
    ids = sample_tokens(logits, numbers, seen, all(o.temperature < COLDEST for o in options)).tolist()
    return [_not_a_number() if i < 0 else i for i in ids]


def _upload(values: Tensor, device: torch.device) -> Tensor:
    """Copy to a device without waiting for it."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def _not_a_number() -> EngineError:
    return EngineError("The model computed values that are not numbers; its files may be damaged.")


def _require_number(largest: Tensor) -> None:
    """NaN sorts as the largest of all, so looking at one value finds them."""
    if not bool(largest.isfinite()):
        raise _not_a_number()


def _penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits of seen ids by the penalty (CTRL, section 4.1)."""
    picked = logits[seen]
    return logits.index_copy(0, seen, torch.where(picked > 0, picked / penalty, picked * penalty))
