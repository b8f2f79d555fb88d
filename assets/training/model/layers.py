"""Layers of the text model. Parameter names are the engine's logical names, so the exporter needs no table.

Sizes: B rows, T tokens, H hidden, n residual streams, h heads, E experts.

`attention_block` and `mlp_block` are compiled. Each kind of layer has one graph, so what differs between layers or between
stages of the run comes in as a tensor or is decided by the caller.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assets.training.shape import Shape

EPS = 1e-5
STREAMS, STREAM_EPS, MAGNITUDE = 4, 1e-6, 2.0
EXPERT_SCALE, EXPERT_LIMIT = 2.5, 10.0


def matrix(*size: int, std: float = 0.02) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size) * std)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """In the dtype of the activations; master weights stay float32."""
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * weight).to(x.dtype)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Interleaved pairs of x [B, T, heads, width] turned by angles [2, B, T, 1, width / 2] (cos, sin)."""
    cos, sin = angles
    a, b = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x.dtype)


def rope_rows(shape: Shape) -> Tensor:
    """The row of positions that each frequency follows: i mod 3 while i < 3 section, then 0."""
    return torch.tensor([i % 3 if i < 3 * shape.rope_sections[i % 3] else 0 for i in range(shape.rope_width // 2)])


def rope_angles(positions: Tensor, rows: Tensor) -> Tensor:
    """positions [3, B, T], `rope_rows` on the same device -> cos and sin [2, B, T, 1, width / 2]."""
    speed = 10000.0 ** (-torch.arange(len(rows), device=positions.device).float() / len(rows))
    turned = positions.float()[rows].permute(1, 2, 0) * speed
    return torch.stack([turned.cos(), turned.sin()]).unsqueeze(3)


class StreamSite(nn.Module):
    """Independent hyper-connection of one block: gates into and out of the residual streams."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.fn = matrix(2 * STREAMS, STREAMS * hidden)
        start = torch.zeros(2 * STREAMS)
        start[:STREAMS] = -math.log(STREAMS - 1)  # at first every stream counts 1 / n on the way in, 1 on the way out
        self.base = nn.Parameter(start)
        self.scale = nn.Parameter(torch.full((2,), 0.01))

    def enter(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """streams [..., n, H] -> block input [..., H], output gates [..., n]."""
        z = _projected(streams, self.fn)
        pre = torch.sigmoid(z[..., :STREAMS] * self.scale[0] + self.base[:STREAMS]) + STREAM_EPS
        post = MAGNITUDE * torch.sigmoid(z[..., STREAMS:] * self.scale[1] + self.base[STREAMS:]) + STREAM_EPS
        return _mixed(streams, pre), post


def _projected(streams: Tensor, fn: Tensor) -> Tensor:
    """The product stays in the dtype of the streams: a float32 copy of them would cost more than the whole block."""
    flat = streams.flatten(-2)
    return linear(flat, fn).float() * torch.rsqrt(flat.float().square().mean(-1, keepdim=True) + EPS)


def _mixed(streams: Tensor, gates: Tensor) -> Tensor:
    return (gates.unsqueeze(-1) * streams.float()).sum(-2).to(streams.dtype)


def leave(streams: Tensor, post: Tensor, output: Tensor) -> Tensor:
    return (streams.float() + post.unsqueeze(-1) * output.float().unsqueeze(-2)).to(streams.dtype)


class Collapse(nn.Module):
    """Streams to one hidden state before the last norm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.fn = matrix(STREAMS, STREAMS * hidden)
        self.base = nn.Parameter(torch.full((STREAMS,), -math.log(STREAMS - 1)))
        self.scale = nn.Parameter(torch.full((1,), 0.01))

    def forward(self, streams: Tensor) -> Tensor:
        return _mixed(streams, torch.sigmoid(_projected(streams, self.fn) * self.scale + self.base) + STREAM_EPS)


class KeyNorm(nn.Module):
    """Layer norm of the index keys."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), x.shape[-1:], self.weight, self.bias, EPS).to(x.dtype)


class Indexer(nn.Module):
    """Scores every earlier token with ReLU dot products of small heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.query = matrix(shape.index_heads * shape.index_width, shape.query_rank)
        self.key = matrix(shape.index_width, shape.hidden)
        self.key_norm = KeyNorm(shape.index_width)
        self.head_weights = matrix(shape.index_heads, shape.hidden)

    def forward(self, x: Tensor, queries: Tensor, angles: Tensor) -> Tensor:
        """Normed input [B, T, H] and query latents -> scores float32 [B, T, T]; the rope channels are the last ones."""
        shape = self.shape
        heads, width, kept = shape.index_heads, shape.index_width, shape.index_width - shape.rope_width
        q = linear(queries, self.query).unflatten(-1, (heads, width))
        k = self.key_norm(linear(x, self.key)).unsqueeze(2)
        q, k = (torch.cat([t[..., :kept], rotate(t[..., kept:], angles)], -1) for t in (q, k))
        weights = F.linear(x.float(), self.head_weights) * (heads**-0.5 * width**-0.5)
        products = torch.matmul(q.flatten(1, 2), k.squeeze(2).transpose(1, 2)).unflatten(1, (-1, heads))
        return (weights.unsqueeze(-1) * torch.relu(products).float()).sum(2)


class Attention(nn.Module):
    """Latent attention with sinks and output gate; parameters only, `attention_block` computes."""

    def __init__(self, shape: Shape, has_indexer: bool) -> None:
        super().__init__()
        self.shape = shape
        heads, out = shape.heads, shape.heads * shape.value_width
        self.q_down, self.q_norm = matrix(shape.query_rank, shape.hidden), nn.Parameter(torch.ones(shape.query_rank))
        self.q_up = matrix(heads * (shape.nope_width + shape.rope_width), shape.query_rank)
        self.kv_down = matrix(shape.latent_rank + shape.rope_width, shape.hidden)
        self.kv_norm = nn.Parameter(torch.ones(shape.latent_rank))
        self.kv_up = matrix(heads * (shape.nope_width + shape.value_width), shape.latent_rank)
        self.gate = matrix(out, shape.hidden)
        self.output = matrix(shape.hidden, out, std=0.02 / math.sqrt(2 * shape.layers))
        self.sinks = nn.Parameter(torch.zeros(heads))
        self.indexer = Indexer(shape) if has_indexer else None


class FeedForward(nn.Module):
    """Dense SwiGLU."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        self.gate, self.up = matrix(width, shape.hidden), matrix(width, shape.hidden)
        self.down = matrix(shape.hidden, width, std=0.02 / math.sqrt(2 * shape.layers))

    def forward(self, x: Tensor) -> Tensor:
        return linear(F.silu(linear(x, self.gate)) * linear(x, self.up), self.down)


class Router(nn.Module):
    """Scores of the experts; the bias balances the load and is no gradient's business."""

    bias: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = matrix(shape.experts, shape.hidden)
        self.register_buffer("bias", torch.zeros(shape.experts))


class Experts(nn.Module):
    """All experts of a layer: gate_up [E, 2I, H] with the gate rows first, down [E, H, I]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_up = matrix(shape.experts, 2 * shape.expert_width, shape.hidden)
        self.down = matrix(shape.experts, shape.hidden, shape.expert_width, std=0.02 / math.sqrt(2 * shape.layers))


class MixtureOfExperts(nn.Module):
    """Computes every expert for every token and weighs with zeros: two large products beat scattering at this size."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.router, self.experts, self.shared = Router(shape), Experts(shape), FeedForward(shape, shape.expert_width)

    def forward(self, x: Tensor, gate_up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """x [N, H], the experts' weights as they shall count -> [N, H], and the share of tokens that chose each [E]."""
        shape = self.shape
        scores = torch.sigmoid(F.linear(x.float(), self.router.weight))
        chosen = (scores.detach() + self.router.bias).topk(shape.chosen_experts, -1, sorted=False).indices
        mask = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
        weights = scores * mask
        weights = weights * (EXPERT_SCALE / (weights.sum(-1, keepdim=True) + 1e-20))
        inner = linear(x, gate_up.flatten(0, 1)).unflatten(-1, (shape.experts, 2, shape.expert_width))
        gate = inner[..., 0, :].float().clamp(max=EXPERT_LIMIT)
        up = inner[..., 1, :].float().clamp(-EXPERT_LIMIT, EXPERT_LIMIT)
        hidden = (F.silu(gate) * up * weights.unsqueeze(-1)).to(x.dtype).flatten(-2)
        routed = linear(hidden, down.permute(1, 0, 2).flatten(1))
        return routed + self.shared(x), mask.mean(0)


class Layer(nn.Module):
    """One decoder layer; parameters only."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self.attention_mix, self.mlp_mix = StreamSite(shape.hidden), StreamSite(shape.hidden)
        self.attention_norm = nn.Parameter(torch.ones(shape.hidden))
        self.mlp_norm = nn.Parameter(torch.ones(shape.hidden))
        self.attention = Attention(shape, number in shape.index_layers)
        self.mlp: nn.Module = FeedForward(shape, shape.dense_width) if number == 0 else MixtureOfExperts(shape)


class Attended(NamedTuple):
    """What an attention block gives. Index scores and attention cover the first `index_rows` rows only."""

    streams: Tensor
    chosen: Tensor | None  # bool [B, T, T], the index's new choice
    scores: Tensor | None  # float32 [rows, T, T], where this layer has an indexer
    attention: Tensor | None  # float32 [rows, T, T], sum over the layers that share a list; no gradient


def attention_block(
    layer: Layer,
    streams: Tensor,
    angles: Tensor,
    visible: Tensor,
    attention: Tensor | None,
    choose: bool,
    index_rows: int,
) -> Attended:
    """visible bool [B, T, T]; `choose`: the layer's index narrows it. attention: of the layers since the last index."""
    own, shape = layer.attention, layer.attention.shape
    x, post = layer.attention_mix.enter(streams)
    x = rms_norm(x, layer.attention_norm)
    query = rms_norm(linear(x, own.q_down), own.q_norm)
    scores, chosen = None, None
    if own.indexer is not None and (choose or index_rows):
        # The index learns from its own loss only: nothing flows back into the model. It learns from some of the rows.
        scores = own.indexer(x[:index_rows].detach(), query[:index_rows].detach(), angles[:, :index_rows])
        if choose:
            with torch.no_grad():
                others = own.indexer(x[index_rows:], query[index_rows:], angles[:, index_rows:])
                hidden = torch.cat([scores, others]).masked_fill(~visible, float("-inf"))
                best = hidden.topk(min(shape.index_topk, hidden.shape[-1]), -1, sorted=False).indices
                chosen = visible = torch.zeros_like(visible).scatter(-1, best, True) & visible
    q_nope, q_rope = (
        linear(query, own.q_up).unflatten(-1, (shape.heads, -1)).split([shape.nope_width, shape.rope_width], -1)
    )
    latent, key = linear(x, own.kv_down).split([shape.latent_rank, shape.rope_width], -1)
    key = rotate(key.unsqueeze(2), angles).expand(-1, -1, shape.heads, -1)
    k_nope, value = (
        linear(rms_norm(latent, own.kv_norm), own.kv_up)
        .unflatten(-1, (shape.heads, -1))
        .split([shape.nope_width, shape.value_width], -1)
    )
    q = torch.cat([q_nope, rotate(q_rope, angles)], -1).transpose(1, 2)
    k = torch.cat([k_nope, key], -1).transpose(1, 2)
    weights = attention_weights(q, k, visible, own.sinks)
    mixed = torch.matmul(weights.to(value.dtype), value.transpose(1, 2)).transpose(1, 2).flatten(2)
    mixed = mixed * torch.sigmoid(linear(x, own.gate))
    if index_rows:
        mean = weights[:index_rows].detach().mean(1)
        attention = mean if attention is None else attention + mean
    return Attended(leave(streams, post, linear(mixed, own.output)), chosen, scores, attention)


def attention_weights(q: Tensor, k: Tensor, visible: Tensor, sinks: Tensor | None = None) -> Tensor:
    """q, k [B, h, T, d], visible [B, T, T] -> float32 [B, h, T, T]. Only the product in q's dtype goes through memory."""
    logits = torch.matmul(q, k.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    logits = logits.masked_fill(~visible.unsqueeze(1), -1e30)
    top = logits.amax(-1, keepdim=True).detach()
    if sinks is None:
        weights = torch.exp(logits - top)
        return weights / weights.sum(-1, keepdim=True)
    sink = sinks.view(1, -1, 1, 1)
    top = torch.maximum(top, sink.detach())
    weights = torch.exp(logits - top)
    return weights / (weights.sum(-1, keepdim=True) + torch.exp(sink - top))


def mlp_block(layer: Layer, streams: Tensor, experts: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor | None]:
    """Feed-forward of a layer on streams [N, n, H]; also the load of its experts, whose weights the caller gives."""
    x, post = layer.mlp_mix.enter(streams)
    x = rms_norm(x, layer.mlp_norm)
    load = None
    if experts is not None:
        output, load = layer.mlp(x, *experts)
    else:
        output = layer.mlp(x)
    return leave(streams, post, output), load
