"""The whole trainable model and its losses. Knows tensors, not where training data comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
import torch.nn.functional as F
from torch import Tensor, nn

from assets.training.model.layers import (
    STREAMS,
    Attended,
    Collapse,
    Layer,
    MixtureOfExperts,
    attention_block,
    matrix,
    mlp_block,
    rms_norm,
    rope_angles,
    rope_rows,
)
from assets.training.model.quantize import straight_through_mxfp4
from assets.training.model.sight import Sight, embed_patches, merge_patches, vision_block
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


class Losses(NamedTuple):
    """Sums over the weighted tokens, and the mean index loss."""

    cross_entropy: Tensor
    log_z: Tensor  # squared log partition, keeps logits small
    right: Tensor
    weight: Tensor
    index: Tensor
    loads: list[Tensor]  # share of tokens per expert, one entry per mixture layer


class Stage(NamedTuple):
    """How a step is computed. index_rows: rows on which the index is trained."""

    sparse: bool = False
    quantized: bool = False
    index_rows: int = 0
    plain: bool = False  # do not compile: for shapes that occur once


def collapsed(collapse: Collapse, norm: Tensor, streams: Tensor) -> Tensor:
    """Final hidden states [N, H] of streams [N, n, H]."""
    return rms_norm(collapse(streams), norm)


def token_losses(hidden: Tensor, head: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted sums of cross entropy, squared log partition and right guesses."""
    logits = F.linear(hidden, head.to(hidden.dtype)).float()
    log_z = torch.logsumexp(logits, -1)
    # Compared, not gathered: the gradient of a gather is a second array as large as the logits.
    wanted = torch.arange(logits.shape[-1], device=logits.device) == target.unsqueeze(-1)
    cross = log_z - torch.where(wanted, logits, 0.0).sum(-1)
    right = (logits.argmax(-1) == target) * weight
    return (cross * weight).sum(), (log_z.square() * weight).sum(), right.sum()


def index_loss(scores: Tensor, attention: Tensor, visible: Tensor) -> Tensor:
    """KL(attention of the layers that read the list, normalised || softmax of index scores), mean over tokens."""
    mask = visible[: scores.shape[0]]
    wanted = attention * mask
    wanted = wanted / (wanted.sum(-1, keepdim=True) + 1e-9)
    guess = torch.log_softmax(scores.masked_fill(~mask, -1e30), -1)
    each = (torch.xlogy(wanted, wanted) - torch.where(mask, wanted * guess, 0.0)).sum(-1)
    counted = mask.sum(-1) > 1
    return (each * counted).sum() / counted.sum().clamp_min(1)


class Pieces(NamedTuple):
    """The functions that take nearly all the time. Each gets its weights as arguments, so that layers share graphs."""

    attend: Callable[..., Attended] = attention_block
    feed: Callable[..., tuple[Tensor, Tensor | None]] = mlp_block
    rounded: Callable[..., Tensor] = straight_through_mxfp4
    embed: Callable[..., Tensor] = embed_patches
    look: Callable[..., Tensor] = vision_block
    merge: Callable[..., Tensor] = merge_patches
    finish: Callable[..., Tensor] = collapsed
    judge: Callable[..., tuple[Tensor, Tensor, Tensor]] = token_losses
    index: Callable[..., Tensor] = index_loss


PLAIN = Pieces()


def compiled_pieces(backend: str = "inductor") -> Pieces:
    """Every graph is kept on disk under TORCHINDUCTOR_CACHE_DIR; the settings here are part of its key."""
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64  # all graphs of one piece, over all stages of a run
    torch._inductor.config.fx_graph_cache = True
    torch._functorch.config.enable_autograd_cache = True
    return Pieces(*(torch.compile(f, dynamic=False, fullgraph=True, backend=backend) for f in PLAIN))


class Twin(nn.Module):
    """hy_v4_vl with gradients."""

    rope_rows: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding, self.head = matrix(shape.vocab, shape.hidden), matrix(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList([Layer(shape, number) for number in range(shape.layers)])
        self.collapse = Collapse(shape.hidden)
        self.norm = nn.Parameter(torch.ones(shape.hidden))
        self.vision = Sight(shape)
        self.register_buffer("rope_rows", rope_rows(shape), persistent=False)
        self.pieces = PLAIN

    def compile(self, backend: str = "inductor") -> None:  # type: ignore[override]
        """Compile the repeated pieces once each; layers of one kind share a graph."""
        self.pieces = compiled_pieces(backend)

    def hidden(
        self, rows: TokenRows, stage: Stage, dtype: torch.dtype = torch.bfloat16
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Final hidden states [B, T, H], the index loss, and the loads of the mixture layers."""
        pieces = PLAIN if stage.plain else self.pieces
        x = self._embedded(rows, pieces, dtype)
        angles = rope_angles(rows.positions, self.rope_rows)
        order = torch.arange(rows.ids.shape[1], device=rows.ids.device)
        allowed = (order.unsqueeze(1) >= order) & (rows.document.unsqueeze(2) == rows.document.unsqueeze(1))
        size = (*rows.ids.shape, STREAMS, self.shape.hidden)
        streams = x.unsqueeze(2).expand(size).contiguous()
        visible, loads = allowed, []
        loss = x.new_zeros((), dtype=torch.float32)
        scores: Tensor | None = None
        attention: Tensor | None = None  # sum over the layers that share the running index list
        for layer in self.layers:
            indexed = layer.attention.indexer is not None  # type: ignore[union-attr]
            if indexed:
                if scores is not None and attention is not None:
                    loss = loss + pieces.index(scores, attention, visible)
                visible, scores, attention = allowed, None, None
            done = pieces.attend(layer, streams, angles, visible, attention, stage.sparse and indexed, stage.index_rows)
            streams, attention = done.streams, done.attention
            visible = visible if done.chosen is None else done.chosen
            scores = scores if done.scores is None else done.scores
            # Without its rows and columns a batch of long rows is computed by the same graph as one of short rows.
            flat, load = pieces.feed(layer, streams.flatten(0, 1), self._experts(layer, stage, pieces, dtype))
            streams = flat.view(size)
            if load is not None:
                loads.append(load)
        if scores is not None and attention is not None:
            loss = loss + pieces.index(scores, attention, visible)
        final = pieces.finish(self.collapse, self.norm, streams.flatten(0, 1))
        return final.view(*rows.ids.shape, -1), loss / len(self.shape.index_layers), loads

    def _embedded(self, rows: TokenRows, pieces: Pieces, dtype: torch.dtype) -> Tensor:
        """Embeddings of tokens and pictures [B, T, H]. F.embedding, because the gradient of indexing is added up row by
        row where many tokens are the same; for that reason, too, tokens without a picture point to varying rows."""
        x = F.embedding(rows.ids, self.embedding).to(dtype)
        if rows.patches.shape[0]:
            vision = self.vision
            same = rows.picture.unsqueeze(1) == rows.picture.unsqueeze(2)
            seen = pieces.embed(vision, rows.patches, rows.place, dtype)
            for block in vision.blocks:
                seen = pieces.look(block, seen, same)
            table = pieces.merge(vision.merger, seen)
            anywhere = torch.arange(rows.slot.numel(), device=rows.slot.device).view_as(rows.slot) % table.shape[0]
            shown = rows.slot >= 0
            x = torch.where(shown.unsqueeze(-1), F.embedding(torch.where(shown, rows.slot, anywhere), table), x)
        return x

    def _experts(
        self, layer: nn.Module, stage: Stage, pieces: Pieces, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor] | None:
        """Expert weights in the dtype of the activations, rounded where the stage says so; None in a dense layer.
        Always copies, so that rounded and unrounded ones are of one kind to the compiler."""
        if not isinstance(layer.mlp, MixtureOfExperts):
            return None
        both = layer.mlp.experts.gate_up, layer.mlp.experts.down
        gate_up, down = (pieces.rounded(w, dtype) if stage.quantized else w.to(dtype, copy=True) for w in both)
        return gate_up, down

    def losses(self, rows: TokenRows, stage: Stage, dtype: torch.dtype = torch.bfloat16) -> Losses:
        """Next-token losses of a batch."""
        hidden, index, loads = self.hidden(rows, stage, dtype)
        judge = (PLAIN if stage.plain else self.pieces).judge
        target = rows.ids.roll(-1, 1)
        sums = judge(hidden.flatten(0, 1), self.head, target.flatten(), rows.weight.flatten())
        return Losses(*sums, rows.weight.sum(), index, loads)
