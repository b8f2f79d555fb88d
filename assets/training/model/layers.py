"""Layers of the text model. Parameter names are the engine's logical names, so the exporter needs no table.

Sizes: B rows, T tokens, H hidden, n residual streams, h heads, E experts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assets.training.model.quantize import straight_through_mxfp4
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


def rope_angles(positions: Tensor, shape: Shape) -> Tensor:
    """positions [3, B, T] -> cos and sin [2, B, T, 1, width / 2]; frequency i follows row i mod 3 while i < 3 section."""
    half = shape.rope_width // 2
    speed = 10000.0 ** (-torch.arange(half, device=positions.device).float() / half)
    rows = [i % 3 if i < 3 * shape.rope_sections[i % 3] else 0 for i in range(half)]
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
        """streams [B, T, n, H] -> block input [B, T, H], output gates [B, T, n]."""
        z = _projected(streams, self.fn)
        pre = torch.sigmoid(z[..., :STREAMS] * self.scale[0] + self.base[:STREAMS]) + STREAM_EPS
        post = MAGNITUDE * torch.sigmoid(z[..., STREAMS:] * self.scale[1] + self.base[STREAMS:]) + STREAM_EPS
        return _mixed(streams, pre), post


def _projected(streams: Tensor, fn: Tensor) -> Tensor:
    flat = streams.flatten(2).float()
    return F.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + EPS)


def _mixed(streams: Tensor, gates: Tensor) -> Tensor:
    return (gates.unsqueeze(-1) * streams.float()).sum(2).to(streams.dtype)


def leave(streams: Tensor, post: Tensor, output: Tensor) -> Tensor:
    return (streams.float() + post.unsqueeze(-1) * output.float().unsqueeze(2)).to(streams.dtype)


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

    def forward(self, x: Tensor, quantized: bool) -> tuple[Tensor, Tensor]:
        """x [B, T, H] -> [B, T, H], and the share of tokens that chose each expert [E]."""
        shape = self.shape
        scores = torch.sigmoid(F.linear(x.float(), self.router.weight))
        chosen = (scores.detach() + self.router.bias).topk(shape.chosen_experts, -1).indices
        mask = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
        weights = scores * mask
        weights = weights * (EXPERT_SCALE / (weights.sum(-1, keepdim=True) + 1e-20))
        gate_up, down = self.experts.gate_up, self.experts.down
        if quantized:
            gate_up, down = straight_through_mxfp4(gate_up), straight_through_mxfp4(down)
        inner = linear(x, gate_up.flatten(0, 1)).unflatten(-1, (shape.experts, 2, shape.expert_width))
        gate = inner[..., 0, :].float().clamp(max=EXPERT_LIMIT)
        up = inner[..., 1, :].float().clamp(-EXPERT_LIMIT, EXPERT_LIMIT)
        hidden = (F.silu(gate) * up * weights.unsqueeze(-1)).to(x.dtype).flatten(-2)
        routed = linear(hidden, down.permute(1, 0, 2).flatten(1))
        return routed + self.shared(x), mask.flatten(0, -2).mean(0)


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
    """What an attention block gives. Index scores and mean attention cover the first `index_rows` rows only."""

    streams: Tensor
    selected: Tensor | None  # bool [B, T, T]
    scores: Tensor | None  # float32 [rows, T, T], where this layer has an indexer
    attention: Tensor | None  # float32 [rows, T, T], mean of the heads, no gradient


def attention_block(
    layer: Layer,
    streams: Tensor,
    angles: Tensor,
    allowed: Tensor,
    selected: Tensor | None,
    sparse: bool,
    index_rows: int,
) -> Attended:
    """allowed bool [B, T, T]; selected: list of the last layer with an indexer, when sparse."""
    own, shape = layer.attention, layer.attention.shape
    x, post = layer.attention_mix.enter(streams)
    x = rms_norm(x, layer.attention_norm)
    query = rms_norm(linear(x, own.q_down), own.q_norm)
    scores = None
    if own.indexer is not None:
        # The index learns from its own loss only: nothing flows back into the model.
        seen = slice(None) if sparse else slice(index_rows)
        scores = own.indexer(x[seen].detach(), query[seen].detach(), angles[:, seen])
        if sparse:
            hidden = scores.detach().masked_fill(~allowed, float("-inf"))
            best = hidden.topk(min(shape.index_topk, hidden.shape[-1]), -1).indices
            selected = torch.zeros_like(allowed).scatter(-1, best, True) & allowed
            scores = scores[:index_rows]
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
    visible = allowed if selected is None or not sparse else selected
    logits = torch.matmul(q, k.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    logits = logits.masked_fill(~visible.unsqueeze(1), -1e30)
    sinks = own.sinks.view(1, -1, 1, 1)
    top = torch.maximum(logits.amax(-1, keepdim=True), sinks).detach()
    weights = torch.exp(logits - top)
    weights = weights / (weights.sum(-1, keepdim=True) + torch.exp(sinks - top))
    mixed = torch.matmul(weights.to(value.dtype), value.transpose(1, 2)).transpose(1, 2).flatten(2)
    mixed = mixed * torch.sigmoid(linear(x, own.gate))
    mean = weights[:index_rows].detach().mean(1) if index_rows else None
    return Attended(leave(streams, post, linear(mixed, own.output)), selected, scores, mean)


def mlp_block(layer: Layer, streams: Tensor, quantized: bool) -> tuple[Tensor, Tensor | None]:
    """Feed-forward of a layer; also the load of its experts."""
    x, post = layer.mlp_mix.enter(streams)
    x = rms_norm(x, layer.mlp_norm)
    load = None
    if isinstance(layer.mlp, MixtureOfExperts):
        output, load = layer.mlp(x, quantized)
    else:
        output = layer.mlp(x)
    return leave(streams, post, output), load
