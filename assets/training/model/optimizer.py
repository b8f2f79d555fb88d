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
    """Matrices of one shape, turned or not, are updated together. Convolutions count as matrices [out, the rest]."""

    def __init__(self, parameters: list[nn.Parameter], decay: float = 0.05, momentum: float = 0.95) -> None:
        self.decay, self.momentum = decay, momentum
        self.groups: dict[tuple[int, int], list[nn.Parameter]] = {}
        for p in parameters:
            rows, columns = _size(p)
            self.groups.setdefault((min(rows, columns), max(rows, columns)), []).append(p)
        self.memory = {p: torch.zeros_like(p) for p in parameters}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for size, parameters in self.groups.items():
            gradients = [p.grad for p in parameters]
            memory = [self.memory[p] for p in parameters]
            torch._foreach_lerp_(memory, gradients, 1 - self.momentum)
            ahead = torch._foreach_lerp(gradients, memory, self.momentum)
            wide = [_wide(a) for a in ahead]
            update = orthogonal(torch.cat(wide)).float() * (0.2 * size[1] ** 0.5)
            torch._foreach_mul_(parameters, 1 - rate * self.decay)
            parts = update.split([len(w) for w in wide])
            turned = [u.transpose(1, 2) if _is_tall(p) else u for p, u in zip(parameters, parts, strict=True)]
            updates = [u.reshape(p.shape) for p, u in zip(parameters, turned, strict=True)]
            torch._foreach_add_(parameters, updates, alpha=-rate)

    def state(self) -> list[Tensor]:
        return [m.bfloat16() for m in self.memory.values()]

    def load(self, state: list[Tensor]) -> None:
        for own, saved in zip(self.memory.values(), state, strict=True):
            own.copy_(saved)


def _size(p: Tensor) -> tuple[int, int]:
    """Last two dimensions; a convolution kernel is flattened behind its first."""
    return (p.shape[0], p[0].numel()) if p.dim() == 4 else (p.shape[-2], p.shape[-1])


def _is_tall(p: Tensor) -> bool:
    rows, columns = _size(p)
    return rows > columns


def _wide(p: Tensor) -> Tensor:
    """As matrices [n, rows, columns] with no more rows than columns, bfloat16."""
    x = p.bfloat16().reshape(-1, *_size(p))
    return x.transpose(1, 2) if _is_tall(p) else x


def orthogonal(g: Tensor) -> Tensor:
    """g [n, rows, columns], no more rows than columns, with its singular values moved near 1."""
    x = g / (g.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x


class Average:
    """Exponential moving average of the weights; forgets faster at the beginning."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.decay, self.updates = decay, 0
        self.weights = {n: p.detach() for n, p in model.named_parameters()}
        self.values = {n: p.clone() for n, p in self.weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(list(self.values.values()), list(self.weights.values()), 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the model and their average; twice is as before."""
        for name, value in self.values.items():
            weight = self.weights[name]
            held = weight.clone()
            weight.copy_(value)
            value.copy_(held)

    def state(self) -> dict[str, Any]:
        return {"updates": self.updates, "values": dict(self.values)}

    def load(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        for name, value in self.values.items():
            value.copy_(state["values"][name])


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


def rate_at(part: float, top: float, flat: float = 0.3) -> float:
    """Learning rate at a part 0..1 of the run: flat, then straight down to 2 %. The caller warms up."""
    return top * (0.02 + 0.98 * min(1.0, max(0.0, 1 - (part - flat) / (1 - flat))))
