"""From logits to the next token id."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import BadRequest, EngineError

_COLDEST = 1e-4  # below it only the best id has a chance, and logits / temperature could overflow


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
    """One request's sampler with its own random generator, so that a seed gives the same text in any batch."""

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        self._options = sampling
        self._generator = torch.Generator(device=device)
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def __call__(self, logits: Tensor, seen: Tensor | None) -> int:
        """Next id from float32 logits [vocab]; `seen` int64 [n] are ids the repetition penalty applies to."""
        options = self._options
        if options.repetition_penalty != 1.0 and seen is not None and seen.numel():
            logits = _penalised(logits, seen, options.repetition_penalty)
        if options.temperature < _COLDEST:
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


def _require_number(largest: Tensor) -> None:
    """NaN sorts as the largest of all, so looking at one value finds them."""
    if not bool(largest.isfinite()):
        raise EngineError("The model computed values that are not numbers; its files may be damaged.")


def _penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits of seen ids by the penalty (CTRL, section 4.1)."""
    picked = logits[seen]
    return logits.index_copy(0, seen, torch.where(picked > 0, picked / penalty, picked * penalty))
