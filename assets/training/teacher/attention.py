"""One decoding step of attention for all rows: rotate, write the cache, read each row's own conversation only.

`attend` is plain torch and reads the whole cache; `attend_fast` is the same in Triton. Every row reads from the slot where
its conversation began, so a step moves a fraction of what lies in the cache. Each has its own order of channels in the
cache: `attend` keeps GGUF's pairs side by side, `attend_fast` all first halves before all second ones.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GGUF keeps Llama's pairs side by side."""
    a, b = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def attend(qkv: Tensor, keys: Tensor, values: Tensor, position: Tensor, start: Tensor, speed: Tensor) -> Tensor:
    """qkv [B, (heads + 2 groups) width] of slot `position` (0-d); row b sees slots start[b] .. position.

    Writes keys and values [B, groups, T, width]; returns [B, heads width]. speed [width / 2]: radians per slot.
    """
    rows, groups, slots, width = keys.shape
    q, k, v = qkv.unflatten(-1, (-1, width)).split([qkv.shape[1] // width - 2 * groups, groups, groups], 1)
    angle = position.float() * speed
    q, k = (_rotate(t, angle.cos(), angle.sin()) for t in (q, k))
    keys.index_copy_(2, position.view(1), k.unsqueeze(2))
    values.index_copy_(2, position.view(1), v.unsqueeze(2))
    slot = torch.arange(slots, device=qkv.device)
    seen = (slot <= position) & (slot >= start.unsqueeze(1))
    scores = torch.matmul(q.reshape(rows, groups, -1, width), keys.transpose(2, 3)).float() * width**-0.5
    weights = torch.softmax(scores.masked_fill(~seen[:, None, None], float("-inf")), -1).to(qkv.dtype)
    return torch.matmul(weights, values).reshape(rows, -1)


@triton.jit
def _attend_kernel(
    qkv, keys, values, position_of, start_of, speed_of, out, slots,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row and group of heads; online softmax from the conversation's first slot on."""
    row = tl.program_id(0) // GROUPS
    group = tl.program_id(0) % GROUPS
    position = tl.load(position_of)
    start = tl.load(start_of + row)
    pair = tl.arange(0, WIDTH // 2)
    angle = position.to(tl.float32) * tl.load(speed_of + pair)
    cos, sin = tl.cos(angle), tl.sin(angle)
    kind = qkv.dtype.element_ty
    head = tl.arange(0, SHARED)
    member = head < HEADS // GROUPS
    base = qkv + row * (HEADS + 2 * GROUPS) * WIDTH
    at = base + (group * (HEADS // GROUPS) + head[:, None]) * WIDTH + 2 * pair[None, :]
    a = tl.load(at, member[:, None], 0).to(tl.float32)
    b = tl.load(at + 1, member[:, None], 0).to(tl.float32)
    scale = 1.0 / tl.sqrt(WIDTH * 1.0)
    # Rounded as a cached key is, so that the order of operations is the one of the plain version.
    q_first = (a * cos - b * sin).to(kind).to(tl.float32)
    q_second = (a * sin + b * cos).to(kind).to(tl.float32)
    own = base + (HEADS + group) * WIDTH + 2 * pair
    a, b = tl.load(own).to(tl.float32), tl.load(own + 1).to(tl.float32)
    k_first, k_second = (a * cos - b * sin).to(kind), (a * sin + b * cos).to(kind)
    channel = tl.arange(0, WIDTH)
    v = tl.load(base + (HEADS + GROUPS + group) * WIDTH + channel)
    cache = (row.to(tl.int64) * GROUPS + group) * slots * WIDTH
    here = cache + position * WIDTH
    tl.store(keys + here + pair, k_first)
    tl.store(keys + here + WIDTH // 2 + pair, k_second)
    tl.store(values + here + channel, v)
    # The slot of this step comes from registers: what was just stored may not be readable yet.
    top = scale * tl.sum(q_first * k_first.to(tl.float32) + q_second * k_second.to(tl.float32), 1)
    total = tl.full([SHARED], 1.0, tl.float32)
    mixed = tl.zeros([SHARED, WIDTH], tl.float32) + v.to(tl.float32)
    for first in range(start, position, BLOCK):
        slot = first + tl.arange(0, BLOCK)
        inside = slot < position
        place = cache + slot[:, None] * WIDTH
        first_half = tl.load(keys + place + pair[None, :], inside[:, None], 0).to(tl.float32)
        second_half = tl.load(keys + place + WIDTH // 2 + pair[None, :], inside[:, None], 0).to(tl.float32)
        scores = tl.sum(q_first[:, None, :] * first_half[None, :, :], 2)
        scores += tl.sum(q_second[:, None, :] * second_half[None, :, :], 2)
        scores = tl.where(inside[None, :], scores * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp(top - higher)
        weights = tl.exp(scores - higher[:, None])
        held = tl.load(values + place + channel[None, :], inside[:, None], 0).to(tl.float32)
        mixed = mixed * shrink[:, None] + tl.sum(weights[:, :, None] * held[None, :, :], 1)
        total = total * shrink + tl.sum(weights, 1)
        top = higher
    mixed = mixed / total[:, None]
    target = out + row * HEADS * WIDTH + (group * (HEADS // GROUPS) + head[:, None]) * WIDTH + channel[None, :]
    tl.store(target, mixed.to(kind), member[:, None])


def attend_fast(qkv: Tensor, keys: Tensor, values: Tensor, position: Tensor, start: Tensor, speed: Tensor) -> Tensor:
    """As `attend`."""
    rows, groups, slots, width = keys.shape
    heads = qkv.shape[1] // width - 2 * groups
    out = torch.empty(rows, heads * width, dtype=qkv.dtype, device=qkv.device)
    _attend_kernel[(rows * groups,)](
        qkv, keys, values, position, start, speed, out, slots,
        HEADS=heads, GROUPS=groups, WIDTH=width, SHARED=triton.next_power_of_2(heads // groups), BLOCK=32, num_warps=2,
    )  # fmt: skip
    return out
