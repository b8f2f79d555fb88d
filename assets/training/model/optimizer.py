"""Muon for matrices, AdamW for the rest. Muon: momentum made orthogonal by five Newton-Schulz steps (Keller Jordan;
scaled as in Moonlight so that both kinds use one learning rate)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Names of parameters that AdamW trains although they have two dimensions.
_NOT_MUON = ("embedding", "head", "vision.positions", "newline", "router", "head_weights", "_mix.", "collapse")


def is_muon(name: str, value: Tensor) -> bool:
    return value.dim() >= 2 and not any(name.startswith(m) or f".{m}" in f".{name}" or m in name for m in _NOT_MUON)


class Muon:
    """Matrices of one shape are updated together. Convolutions count as matrices [out, the rest]."""

    def __init__(self, parameters: list[nn.Parameter], decay: float = 0.05, momentum: float = 0.95) -> None:
        self.decay, self.momentum = decay, momentum
        self.groups: dict[tuple[int, int], list[nn.Parameter]] = {}
        for p in parameters:
            self.groups.setdefault(_size(p), []).append(p)
        self.memory = {p: torch.zeros_like(p) for p in parameters}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for size, parameters in self.groups.items():
            gradients = [p.grad for p in parameters]
            memory = [self.memory[p] for p in parameters]
            torch._foreach_lerp_(memory, gradients, 1 - self.momentum)
            ahead = torch._foreach_lerp(gradients, memory, self.momentum)
            update = orthogonal(torch.cat([a.reshape(-1, *size) for a in ahead]))
            update *= 0.2 * max(size) ** 0.5
            torch._foreach_mul_(parameters, 1 - rate * self.decay)
            counts = [p.numel() // (size[0] * size[1]) for p in parameters]
            for p, part in zip(parameters, update.split(counts), strict=True):
                p.add_(part.reshape(p.shape), alpha=-rate)

    def state(self) -> list[Tensor]:
        return [m.bfloat16() for m in self.memory.values()]

    def load(self, state: list[Tensor]) -> None:
        for own, saved in zip(self.memory.values(), state, strict=True):
            own.copy_(saved)


def _size(p: Tensor) -> tuple[int, int]:
    """Last two dimensions; a convolution kernel is flattened behind its first."""
    return (p.shape[0], p[0].numel()) if p.dim() == 4 else (p.shape[-2], p.shape[-1])


def orthogonal(g: Tensor) -> Tensor:
    """g [n, rows, columns] with its singular values moved near 1."""
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Optimizer:
    """Both parts behind one step."""

    def __init__(self, model: nn.Module, fused: bool) -> None:
        named = list(model.named_parameters())
        muon = [p for n, p in named if is_muon(n, p)]
        self.others = [p for n, p in named if not is_muon(n, p)]
        flat = [p for p in self.others if p.dim() < 2]
        wide = [p for p in self.others if p.dim() >= 2]
        self.muon = Muon(muon)
        groups = [{"params": wide, "weight_decay": 0.02}, {"params": flat, "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=fused)

    def step(self, rate: float) -> None:
        nn.utils.clip_grad_norm_(self.others, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.muon.step(rate)
        self.adam.step()

    def state(self) -> dict[str, Any]:
        return {"muon": self.muon.state(), "adam": self.adam.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.muon.load(state["muon"])
        self.adam.load_state_dict(state["adam"])


def rate_at(part: float, top: float, warm: float = 0.02, flat: float = 0.3) -> float:
    """Learning rate at a part 0..1 of the run: up, flat, then straight down to 2 %."""
    if part < warm:
        return top * max(part / warm, 0.01)
    if part < flat:
        return top
    return top * (0.02 + 0.98 * max(0.0, 1 - (part - flat) / (1 - flat)))
