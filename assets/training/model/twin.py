"""The whole trainable model and its losses. Knows tensors, not where training data comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assets.training.model.layers import (
    Attended,
    Collapse,
    Layer,
    attention_block,
    matrix,
    mlp_block,
    rms_norm,
    rope_angles,
)
from assets.training.model.sight import Sight
from assets.training.shape import Shape


@dataclass(frozen=True)
class TokenRows:
    """A batch of packed rows. B rows of T tokens, P rows of N patches."""

    ids: Tensor  # [B, T]
    weight: Tensor  # [B, T], tenths: how much predicting token t + 1 counts
    positions: Tensor  # [3, B, T]
    document: Tensor  # [B, T], tokens of different documents do not see each other; -1 = padding
    slot: Tensor  # [B, T], row of the vision output that replaces the embedding, -1 = none, P * N / 4 = newline
    patches: Tensor  # uint8 [P, N, 768]
    picture: Tensor  # [P, N]
    place: Tensor  # [P, N, 4]

    def to(self, device: torch.device | str) -> TokenRows:
        """On a device, in the types the model computes with."""
        moved = {f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)}
        for name in ("ids", "positions", "document", "slot", "place", "picture"):
            moved[name] = moved[name].long()
        moved["weight"] = moved["weight"].float() / 10
        return TokenRows(**moved)

    def pinned(self) -> TokenRows:
        """In memory from which a GPU copies without waiting."""
        return TokenRows(**{f.name: getattr(self, f.name).pin_memory() for f in fields(self)})

    def part(self, first: int, last: int) -> TokenRows:
        """Some of the rows, with all pictures."""
        cut = {
            f.name: getattr(self, f.name)[first:last]
            for f in fields(self)
            if f.name in ("ids", "weight", "document", "slot")
        }
        return replace(self, positions=self.positions[:, first:last], **cut)


class Losses(NamedTuple):
    """Sums over the weighted tokens, and the mean index loss."""

    cross_entropy: Tensor
    log_z: Tensor  # squared log partition, keeps logits small
    right: Tensor
    weight: Tensor
    index: Tensor
    loads: list[Tensor]  # share of tokens per expert, one entry per mixture layer


class Stage(NamedTuple):
    """How a step is computed. index_rows: rows on which the index is trained (all of them when sparse is cheap)."""

    sparse: bool = False
    quantized: bool = False
    index_rows: int = 0
    plain: bool = False  # do not compile: for shapes that occur once


class Twin(nn.Module):
    """hy_v4_vl with gradients."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding, self.head = matrix(shape.vocab, shape.hidden), matrix(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape, number) for number in range(shape.layers)])
        self.collapse = Collapse(shape.hidden)
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        self.vision = Sight(shape)
        self._attend: Callable[..., Attended] = attention_block
        self._feed: Callable[..., tuple[Tensor, Tensor | None]] = mlp_block
        self._see: Callable[..., Tensor] = self.vision.forward
        self._judge: Callable[..., tuple[Tensor, Tensor, Tensor]] = token_losses

    def compile(self, backend: str = "inductor") -> None:  # type: ignore[override]
        """Compile the repeated pieces once each; layers of one kind share a graph."""
        self._attend = torch.compile(attention_block, dynamic=False, fullgraph=True, backend=backend)
        self._feed = torch.compile(mlp_block, dynamic=False, fullgraph=True, backend=backend)
        self._see = torch.compile(self.vision.forward, dynamic=False, fullgraph=True, backend=backend)
        self._judge = torch.compile(token_losses, dynamic=False, fullgraph=True, backend=backend)

    def hidden(
        self, rows: TokenRows, stage: Stage, dtype: torch.dtype = torch.bfloat16
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Final hidden states [B, T, H], the index loss, and the loads of the mixture layers."""
        attend, feed, see = self._attend, self._feed, self._see
        if stage.plain:
            attend, feed, see = attention_block, mlp_block, self.vision.forward
        x = self.embedding.to(dtype)[rows.ids]
        if rows.patches.shape[0]:
            seen = see(rows.patches, rows.picture, rows.place, dtype)
            x = torch.where((rows.slot >= 0).unsqueeze(-1), seen[rows.slot.clamp_min(0)], x)
        angles = rope_angles(rows.positions, self.shape)
        order = torch.arange(rows.ids.shape[1], device=rows.ids.device)
        allowed = (order.unsqueeze(1) >= order) & (rows.document.unsqueeze(2) == rows.document.unsqueeze(1))
        streams = x.unsqueeze(2).expand(-1, -1, 4, -1).contiguous()
        selected: Tensor | None = None
        index_loss, loads = x.new_zeros((), dtype=torch.float32), []
        group: list[Tensor] = []  # mean attention of the layers that share the running index list
        scores: Tensor | None = None
        for layer in self.layers:
            if layer.attention.indexer is not None:  # type: ignore[union-attr]
                index_loss = index_loss + _index_loss(scores, group, selected if stage.sparse else allowed)
                group = []
            done = attend(layer, streams, angles, allowed, selected, stage.sparse, stage.index_rows)
            streams, selected = done.streams, done.selected
            scores = done.scores if done.scores is not None else scores
            if done.attention is not None:
                group.append(done.attention)
            streams, load = feed(layer, streams, stage.quantized)
            if load is not None:
                loads.append(load)
        index_loss = index_loss + _index_loss(scores, group, selected if stage.sparse else allowed)
        final = rms_norm(self.collapse(streams), self.norm)
        return final, index_loss / len(self.shape.index_layers), loads

    def losses(self, rows: TokenRows, stage: Stage, dtype: torch.dtype = torch.bfloat16) -> Losses:
        """Next-token losses of a batch."""
        hidden, index, loads = self.hidden(rows, stage, dtype)
        target = rows.ids.roll(-1, 1)
        judge = token_losses if stage.plain else self._judge
        sums = judge(hidden.flatten(0, 1), self.head, target.flatten(), rows.weight.flatten())
        return Losses(*sums, rows.weight.sum(), index, loads)


def token_losses(hidden: Tensor, head: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted sums of cross entropy, squared log partition and right guesses."""
    logits = F.linear(hidden, head.to(hidden.dtype)).float()
    log_z = torch.logsumexp(logits, -1)
    cross = log_z - logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    right = (logits.argmax(-1) == target) * weight
    return (cross * weight).sum(), (log_z.square() * weight).sum(), right.sum()


def _index_loss(scores: Tensor | None, group: list[Tensor], visible: Tensor | None) -> Tensor | float:
    """KL(mean attention of the layers that read the list, renormalised || softmax of index scores), mean over tokens."""
    if scores is None or not group or visible is None:
        return 0.0
    mask = visible[: scores.shape[0]]
    wanted = sum(group[1:], group[0]) / len(group) * mask
    wanted = wanted / (wanted.sum(-1, keepdim=True) + 1e-9)
    guess = torch.log_softmax(scores.masked_fill(~mask, -1e30), -1)
    each = (torch.xlogy(wanted, wanted) - torch.where(mask, wanted * guess, 0.0)).sum(-1)
    counted = mask.sum(-1) > 1
    return (each * counted).sum() / counted.sum().clamp_min(1)
