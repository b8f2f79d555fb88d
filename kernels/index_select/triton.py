"""Index selection on a GPU: one launch from index queries to sorted top-k positions, without a host synchronisation.

Sizes: B queries, G programs per query, N entries a query sees, D key width, H heads, K wanted, P entries per page.
A score is handled as its key: an int32 in the order of the floats (-0 is +0, NaN is -inf).

1 score    every program scores a run of entries, keeps the keys, and counts them in a histogram of 32 bins per octave
           (positive scores; the rest is bin 0). Of many entries it counts only keys above a lower bound of its own.
2 bound    after a grid barrier all programs find the bin of the K-th key. If a guess was too high, everything is
           counted after all; if the bin is too full, it is split again, in the end down to one value: a pure tie.
3 collect  keys of that bin go to one candidate list; after a second barrier all programs find the exact last key and
           position in it and write their own part of the result, in ascending order.

Nothing can overflow: the candidate list is used only when the bin fits.
Scratch memory cleans itself for the next launch. All programs of a launch must be resident together.
Grid and scratch follow the width of the page table, which may be padded; how many entries a query sees is known only on
the device. Programs without entries of their own wait at the barriers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.choose import Case
from kernels.gpu import interpreted, multiprocessors, require_gpu
from kernels.index_select import reference
from kernels.index_select.reference import index_key_page_bytes

_BINS = 1024
_COPIES = 4  # of the histogram, so that few programs add to the same address
_ROUNDS = 5  # splits that can be needed: one around zero, then 31 bits in steps of 10
_CANDIDATES = 512  # three counts of so many fit an int32
FEW_QUERIES = 8
_BUFFER = 1 << 26  # scores held at once while many queries are served
_KEPT_QUERIES = 64  # up to here the cleared scratch of many queries is kept between launches
_GUESS_FROM = 16384  # entries; below, counting them all costs less than guessing
_GUESS_FROM_SCORED = 4096  # same where one program serves a query
_CONTROL = 16  # int32 words: 0 last barrier, 1 candidate count, 2 highest guess, 3 .. the other barriers in turn
_LOWEST = tl.constexpr(-2147483648)
_FIRST = tl.constexpr((127 - 16) << 23)  # the bits of 2^-16, where bin 1 begins
_BIN_BITS = tl.constexpr(18)
_BIN_WIDTH = tl.constexpr(1 << 18)


def suits(name: str, case: Case | None) -> None:
    """Needs a Hopper GPU."""
    require_gpu(case)


@triton.jit
def _barrier(counter, G):
    """Wait until all G programs of this query have come here; what they wrote before is visible afterwards."""
    tl.debug_barrier()
    if G > 1:
        tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
        seen = tl.full((), 0, tl.int32)
        address = counter.to(tl.int64, bitcast=True)
        while seen < G:
            seen = tl.inline_asm_elementwise(
                "nanosleep.u32 20; ld.acquire.gpu.global.u32 $0, [$1];",
                "=r,l",
                [address],
                dtype=tl.int32,
                is_pure=False,
                pack=1,
            )
        tl.debug_barrier()


@triton.jit
def _ordered(x):
    """Keys of float32 scores."""
    x = tl.where(x == 0.0, 0.0, x)
    x = tl.where(x != x, float("-inf"), x)
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _bin_of(key, BINS: tl.constexpr):
    above = tl.maximum(key, _FIRST) - _FIRST
    return tl.minimum(tl.where(key >= _FIRST, (above >> _BIN_BITS) + 1, 0), BINS - 1)


@triton.jit
def _add_bins(hist, b, mask):
    """hist[b] += 1 where mask. Where many share a bin they are added at once, since atomics on one address queue up."""
    left = tl.where(mask, b, -1)
    same = tl.full((), 16, tl.int32)
    while same >= 16:
        top = tl.max(left, 0)
        same = tl.sum(((left == top) & (left >= 0)).to(tl.int32), 0)
        if same >= 16:
            tl.atomic_add(hist + top, same, sem="relaxed", scope="gpu")
            left = tl.where(left == top, -1, left)
    tl.atomic_add(hist + tl.maximum(left, 0), 1, mask=left >= 0, sem="relaxed", scope="gpu")


@triton.jit
def _bound(h, wanted):
    """Of counts h[BINS]: the bin that holds the wanted-th largest, how many lie above it, how many in it."""
    suffix = tl.cumsum(h, 0, reverse=True)
    enough = suffix >= wanted
    t = tl.sum(enough.to(tl.int32), 0) - 1
    above = tl.max(tl.where(enough, 0, suffix), 0)
    return t, above, tl.min(tl.where(enough, suffix, 2147483647), 0) - above


@triton.jit
def _counts(hist, BINS: tl.constexpr, COPIES: tl.constexpr):
    bins = tl.arange(0, BINS)
    h = tl.load(hist + bins, cache_modifier=".cg")
    for r in tl.static_range(1, COPIES):
        h += tl.load(hist + r * BINS + bins, cache_modifier=".cg")
    return h


@triton.jit
def _scores(
    q, w, k_ptr, s_ptr, pages_ptr, first, N, page_stride,
    D: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr, PACKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """float32 scores of entries first .. first + BN of one query; q [D, H], w [H]."""
    d = tl.arange(0, D)
    n = first + tl.arange(0, BN)
    inside = n < N
    if PAGE % BN == 0:
        page = tl.load(pages_ptr + first // PAGE).to(tl.int64)
        at = n % PAGE
    else:
        page = tl.load(pages_ptr + n // PAGE, mask=inside, other=0).to(tl.int64)
        at = n % PAGE
    row = page * page_stride + at * D
    key = tl.load(k_ptr + row[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    product = tl.dot(key, q, input_precision=PRECISION)
    x = tl.sum(tl.where(product > 0.0, product, tl.where(product != product, product, 0.0)) * w[None, :], 1)
    if PACKED:
        x = x * tl.load(s_ptr + page * (page_stride // 4) + PAGE * D // 4 + at, mask=inside, other=0.0)
    return x


@triton.jit
def _deviations(share):
    """How far above the mean, in deviations, a little more than three times this share of normal scores lies.

    Within 4.5e-4 (Abramowitz and Stegun, 26.2.23).
    """
    t = tl.sqrt(-2.0 * tl.log(tl.minimum(3.5 * share + 0.002, 0.45)))
    over = 2.515517 + t * (0.802853 + t * 0.010328)
    return t - over / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))


@triton.jit
def _guess(key, length, K, N, SCAN: tl.constexpr):
    """A key that is very probably not above the K-th of all N, judged by the first `length` of `key`.

    Two scores above the mean are tried; the higher one is taken that leaves more of these entries above it than
    belong to the result on average, by 5.5 deviations and 5. If none does, everything counts.
    """
    share = K.to(tl.float32) / N.to(tl.float32)
    z = _deviations(share)
    real = tl.arange(0, SCAN) < length
    x = tl.where(real, (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True), 0.0)
    number = length.to(tl.float32)
    mean = tl.sum(x, 0) / number
    deviation = tl.sqrt(tl.maximum(tl.sum(x * x, 0) / number - mean * mean, 0.0))
    expected = share * number
    rank = (expected + 5.5 * tl.sqrt(expected) + 5.0).to(tl.int32)
    high, low = _ordered(mean + z * deviation), _ordered(mean + 0.5 * z * deviation)
    ones = (key >= high).to(tl.int32) + ((key >= low).to(tl.int32) << 16)
    counts = tl.sum(tl.where(real, ones, 0), 0)
    return tl.where((counts & 65535) >= rank, high, tl.where((counts >> 16) >= rank, low, -2147483648))


@triton.jit(do_not_specialize=["K", "table_width"], do_not_specialize_on_alignment=["G", "guess_from"])
def _select_kernel(
    q_ptr,  # [B, H, D]
    w_ptr,  # float32 [B, H]
    k_ptr,  # key pool, pages of page_stride elements
    s_ptr,  # float32 view of a packed pool
    table_ptr,  # int64 [S, table_width]
    sequence_ptr,  # int64 [B]
    visible_ptr,  # int64 [B]
    out_ptr,  # int32 [B, K]
    keys_ptr,  # int32 [B, room]
    hist_ptr,  # int32 [B, COPIES + ROUNDS, BINS], zero
    candidates_ptr,  # int32 [B, 2, CANDIDATES]: keys, positions
    control_ptr,  # int32 [B, CONTROL + 2 * GROUPS], zero
    K,
    table_width,
    page_stride,
    room,
    G,  # one is compiled apart, without barriers
    guess_from,
    GROUPS: tl.constexpr,
    H: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BN: tl.constexpr,
    SCAN: tl.constexpr,
    SINGLE: tl.constexpr,
    BINS: tl.constexpr,
    COPIES: tl.constexpr,
    ROUNDS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    CONTROL: tl.constexpr,
    PACKED: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    SCORED: tl.constexpr,
    STOP: tl.constexpr,
):
    b = (tl.program_id(0) // G).to(tl.int64)
    c = tl.program_id(0) % G
    N = tl.load(visible_ptr + b).to(tl.int32)
    out = out_ptr + b * K
    scan = tl.arange(0, SCAN)
    if N <= K:
        for t in range(c * SCAN, K, G * SCAN):
            p = t + scan
            tl.store(out + p, tl.where(p < N, p, -1), mask=p < K)
    else:
        _select(
            q_ptr + b * (H * D), w_ptr + b * H, k_ptr, s_ptr, table_ptr + tl.load(sequence_ptr + b) * table_width, out,
            keys_ptr + b * room, hist_ptr + b * ((COPIES + ROUNDS) * BINS),
            candidates_ptr + b * (2 * CANDIDATES), control_ptr + b * (CONTROL + 2 * GROUPS),
            N, K, page_stride, guess_from, c, G, GROUPS, H, HEADS, D, PAGE, BN, SCAN, SINGLE, BINS, COPIES, ROUNDS, CANDIDATES,
            CONTROL, PACKED, PRECISION, STAGES, SCORED, STOP,
        )  # fmt: skip


@triton.jit
def _select(
    q_ptr, w_ptr, k_ptr, s_ptr, pages_ptr, out, keys_ptr, hist_ptr, candidates_ptr, control_ptr,
    N, K, page_stride, guess_from, c, G, GROUPS: tl.constexpr, H: tl.constexpr, HEADS: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr, SCAN: tl.constexpr, SINGLE: tl.constexpr,
    BINS: tl.constexpr,
    COPIES: tl.constexpr, ROUNDS: tl.constexpr, CANDIDATES: tl.constexpr, CONTROL: tl.constexpr, PACKED: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr, SCORED: tl.constexpr, STOP: tl.constexpr,
):  # fmt: skip
    """One query, N > K; see the head of this file. This program owns entries base .. base + length."""
    scan = tl.arange(0, SCAN)
    tile = tl.arange(0, BN)
    share = tl.cdiv(tl.cdiv(N, BN), G) * BN
    base = c * share
    length = tl.minimum(share, tl.maximum(N - base, 0))
    own = keys_ptr + base
    hist = hist_ptr + (c % COPIES) * BINS
    head, d = tl.arange(0, HEADS), tl.arange(0, D)
    if not SCORED:
        q = tl.load(q_ptr + head[None, :] * D + d[:, None], mask=(head < H)[None, :], other=0.0)
        w = tl.load(w_ptr + head, mask=head < H, other=0.0)

    # 1 score. No branch in the loop, or the compiler would not load ahead.
    if not SCORED:
        for t in tl.range(0, length, BN, num_stages=STAGES):
            x = _scores(q, w, k_ptr, s_ptr, pages_ptr, base + t, N, page_stride, D, PAGE, BN, PACKED, PRECISION)
            n = base + t + tile
            tl.store(keys_ptr + n, _ordered(x), mask=n < N)
        tl.debug_barrier()
    if c == 0:  # left from the launch before; used again only behind the first barrier
        tl.store(control_ptr, 0)
        tl.store(control_ptr + 1, 0)
    kept_key = tl.load(own + scan, mask=scan < length, other=_LOWEST)
    guess = tl.full((), -2147483648, tl.int32)
    guessing = guess_from <= N
    if guessing & (length > 0):
        guess = _guess(kept_key, tl.minimum(length, SCAN), K, N, SCAN)
        tl.atomic_max(control_ptr + 2, _bin_of(guess, BINS), sem="relaxed", scope="gpu")
    if STOP > 0:
        for t in range(0, length, SCAN):
            if SINGLE:
                key = kept_key
            else:
                key = tl.load(own + t + scan, mask=t + scan < length, other=_LOWEST)
            bin_ = _bin_of(key, BINS)
            mask = (t + scan < length) & (bin_ > 0) & (key >= guess)
            _add_bins(hist, bin_, mask)

    if STOP > 1:
        # 2 bound
        arrived = 3
        _barrier(control_ptr + arrived, G)
        bins = tl.arange(0, BINS)
        h = _counts(hist_ptr, BINS, COPIES)
        h = tl.where(bins == 0, N - tl.sum(tl.where(bins > 0, h, 0), 0), h)
        t_bin, above, inside = _bound(h, K)
        if guessing & (t_bin <= tl.load(control_ptr + 2, cache_modifier=".cg")):
            # Some program guessed too high: count what was left out, once everybody has looked at the counts.
            _barrier(control_ptr + arrived + 1, G)
            for t in range(0, length, SCAN):
                key = tl.load(own + t + scan, mask=t + scan < length, other=_LOWEST)
                bin_ = _bin_of(key, BINS)
                _add_bins(hist, bin_, (t + scan < length) & (key < guess) & (bin_ > 0))
            _barrier(control_ptr + arrived + 2, G)
            arrived += 2
            h = _counts(hist_ptr, BINS, COPIES)
            h = tl.where(bins == 0, N - tl.sum(tl.where(bins > 0, h, 0), 0), h)
            t_bin, above, inside = _bound(h, K)
        low = ((t_bin.to(tl.int64) - 1) << _BIN_BITS) + _FIRST
        high = low + _BIN_WIDTH
        if t_bin == 0:
            low = tl.full((), -2147483648, tl.int64)
        if t_bin == BINS - 1:
            high = tl.full((), 2147483648, tl.int64)
        round_ = 0
        while ((inside > CANDIDATES) | (high - low > 1073741824)) & (high - low > 1):
            split = hist_ptr + (COPIES + round_) * BINS
            around_zero = (low < 0) & (high > 1)
            shift = 0
            while ((high - low - 1) >> shift) >= BINS:
                shift += 1
            for t in range(0, length, SCAN):
                at = t + scan
                key = tl.load(own + at, mask=at < length, other=_LOWEST).to(tl.int64)
                mask = (at < length) & (key >= low) & (key < high)
                sign = tl.where(key < 0, 0, tl.where(key == 0, 1, 2))
                bin_ = tl.where(around_zero, sign, (key - low) >> shift)
                bin_ = tl.where(mask, bin_, 0).to(tl.int32)
                _add_bins(split, bin_, mask)
            arrived += 1
            _barrier(control_ptr + arrived, G)
            t_bin, more, inside = _bound(tl.load(split + bins, cache_modifier=".cg"), K - above)
            above += more
            if around_zero:
                high = tl.where(t_bin == 0, 0, tl.where(t_bin == 1, 1, high))
                low = tl.where(t_bin == 0, low, tl.where(t_bin == 1, 0, 1)).to(tl.int64)
            else:
                low = low + (t_bin.to(tl.int64) << shift)
                high = tl.minimum(high, low + (tl.full((), 1, tl.int64) << shift))
            round_ += 1

        if STOP > 2:
            _collect(
                out, own, kept_key, hist_ptr, candidates_ptr, control_ptr, N, K, c, base, length, low, high, above,
                inside, G, GROUPS, SCAN, SINGLE, BINS, COPIES, ROUNDS, CANDIDATES, CONTROL, STOP,
            )  # fmt: skip


@triton.jit
def _collect(
    out, own, kept_key, hist_ptr, candidates_ptr, control_ptr, N, K, c, base, length, low, high, above, inside,
    G, GROUPS: tl.constexpr, SCAN: tl.constexpr, SINGLE: tl.constexpr, BINS: tl.constexpr,
    COPIES: tl.constexpr, ROUNDS: tl.constexpr, CANDIDATES: tl.constexpr, CONTROL: tl.constexpr, STOP: tl.constexpr,
):  # fmt: skip
    """Step 3: `above` keys are at least `high`, `inside` lie in low .. high - 1, of which K - above are wanted."""
    scan = tl.arange(0, SCAN)
    wanted = K - above
    low32, last32 = low.to(tl.int32), (high - 1).to(tl.int32)
    fits = inside <= CANDIDATES
    sure = 0
    tied = 0
    for t in range(0, length, SCAN):
        at = t + scan
        if SINGLE:
            key = kept_key
        else:
            key = tl.load(own + at, mask=at < length, other=_LOWEST)
        edge = (at < length) & (key >= low32) & (key <= last32)
        both = tl.sum(tl.where(edge, 65536, tl.where((at < length) & (key > last32), 1, 0)), 0)
        number = both >> 16
        sure += both & 65535
        tied += number
        if (number > 0) & fits:
            place = tl.atomic_add(control_ptr + 1, number, sem="relaxed", scope="gpu")
            place = place + tl.cumsum(edge.to(tl.int32), 0) - 1
            tl.store(candidates_ptr + place, key, mask=edge & (place < CANDIDATES))
            tl.store(candidates_ptr + CANDIDATES + place, base + at, mask=edge & (place < CANDIDATES))
    tl.store(control_ptr + CONTROL + c, sure)
    tl.store(control_ptr + CONTROL + GROUPS + c, tied)
    _barrier(control_ptr, G)
    # Everybody has read the histograms and passed the other barriers: clear them for the next launch.
    for t in range(c * SCAN, (COPIES + ROUNDS) * BINS, G * SCAN):
        tl.store(hist_ptr + t + scan, tl.zeros([SCAN], tl.int32), mask=t + scan < (COPIES + ROUNDS) * BINS)
    if c == 0:
        word = tl.arange(0, CONTROL)
        tl.store(control_ptr + word, tl.zeros([CONTROL], tl.int32), mask=word > 1)
    if STOP > 3:
        lower = tl.arange(0, GROUPS)
        start = tl.sum(tl.load(control_ptr + CONTROL + lower, mask=lower < c, other=0, cache_modifier=".cg"), 0)
        last_key = low32
        last_place = tl.full((), 2147483647, tl.int32)
        ties_before = tl.full((), 0, tl.int32)
        if fits:
            i = tl.arange(0, CANDIDATES)
            listed = i < inside
            key = tl.load(candidates_ptr + i, mask=listed, other=_LOWEST, cache_modifier=".cg")
            n = tl.load(candidates_ptr + CANDIDATES + i, mask=listed, other=2147483647, cache_modifier=".cg")
            last_key = _nth(key - low32, listed, (high - low).to(tl.int32), wanted) + low32
            equal = listed & (key == last_key)
            both = tl.sum(tl.where(equal, 65536, tl.where(listed & (key > last_key), 1, 0)), 0)
            left = wanted - (both & 65535)
            if (both >> 16) > left:
                nearest = tl.full((), -1, tl.int32)
                last_place = N - 1
                while last_place - nearest > 1:
                    place = nearest + (last_place - nearest) // 2
                    if tl.sum((equal & (n <= place)).to(tl.int32), 0) >= left:
                        last_place = place
                    else:
                        nearest = place
            kept = listed & ((key > last_key) | (equal & (n <= last_place)))
            start += tl.sum((kept & (n < base)).to(tl.int32), 0)
        else:
            ties = tl.load(control_ptr + CONTROL + GROUPS + lower, mask=lower < c, other=0, cache_modifier=".cg")
            ties_before = tl.sum(ties, 0)
            start += tl.minimum(ties_before, wanted)
        for t in range(0, length, SCAN):
            at = t + scan
            if SINGLE:
                key = kept_key
            else:
                key = tl.load(own + at, mask=at < length, other=_LOWEST)
            n = base + at
            if fits:
                kept = (at < length) & ((key > last_key) | ((key == last_key) & (n <= last_place)))
            else:
                tie = (at < length) & (key >= low32) & (key <= last32)
                rank = ties_before + tl.cumsum(tie.to(tl.int32), 0) - 1
                kept = (at < length) & ((key > last32) | (tie & (rank < wanted)))
                ties_before += tl.sum(tie.to(tl.int32), 0)
            number = tl.sum(kept.to(tl.int32), 0)
            if number > 0:
                place = start + tl.cumsum(kept.to(tl.int32), 0) - 1
                tl.store(out + place, n, mask=kept & (place < K))
                start += number


@triton.jit
def _nth(offset, real, width, wanted):
    """The wanted-th largest of the real offsets, all of them in 0 .. width - 1; fewer than 1024 of them.

    Three cuts are counted at once in one int32, so that the interval shrinks to a quarter per reduction.
    """
    bottom = tl.zeros_like(width)
    top = width
    while top - bottom > 1:
        step = (top - bottom + 3) // 4
        a, b, c = bottom + step, bottom + 2 * step, bottom + 3 * step
        ones = (offset >= a).to(tl.int32) + ((offset >= b).to(tl.int32) << 10) + ((offset >= c).to(tl.int32) << 20)
        counts = tl.sum(tl.where(real, ones, 0), 0)
        over_a, over_b, over_c = counts & 1023, (counts >> 10) & 1023, counts >> 20
        high = tl.where(over_a < wanted, a, tl.where(over_b < wanted, b, tl.where(over_c < wanted, c, top)))
        bottom = tl.where(over_c >= wanted, c, tl.where(over_b >= wanted, b, tl.where(over_a >= wanted, a, bottom)))
        top = tl.minimum(high, top)
    return bottom


@triton.jit(do_not_specialize=["Q", "table_width"])
def _score_kernel(
    q_ptr,  # [Q, H, D]
    w_ptr,  # float32 [Q, H]
    k_ptr,  # key pool, pages of page_stride elements
    s_ptr,  # float32 view of a packed pool
    table_ptr,  # int64 [S, table_width]
    sequence_ptr,  # int64 [Q]
    visible_ptr,  # int64 [Q]
    keys_ptr,  # int32 [Q, room]
    Q,
    table_width,
    page_stride,
    room,
    H: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BN: tl.constexpr,
    SPAN: tl.constexpr,
    TOGETHER: tl.constexpr,
    PACKED: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Keys of TOGETHER neighbouring queries against a span of entries; queries of one sequence share the loaded entries."""
    query = tl.program_id(1) * TOGETHER + tl.arange(0, TOGETHER)
    known = query < Q
    owner = tl.load(sequence_ptr + query, mask=known, other=-1)
    visible = tl.load(visible_ptr + query, mask=known, other=0).to(tl.int32)
    begin = tl.program_id(0) * SPAN
    rows = tl.arange(0, TOGETHER * HEADS)
    head = rows % HEADS
    row_query = tl.program_id(1) * TOGETHER + rows // HEADS
    real = (head < H) & (row_query < Q)
    d, tile = tl.arange(0, D), tl.arange(0, BN)
    q_row = (row_query.to(tl.int64) * H + head)[None, :] * D
    q = tl.load(q_ptr + q_row + d[:, None], mask=real[None, :], other=0.0)
    w = tl.load(w_ptr + row_query * H + head, mask=real, other=0.0)
    done = tl.full((), -1, tl.int64)
    for _ in range(TOGETHER):
        current = tl.min(tl.where(owner > done, owner, 9223372036854775807), 0)
        mine = owner == current
        longest = tl.max(tl.where(mine, visible, 0), 0)
        done = current
        pages_ptr = table_ptr + current * table_width
        for t in tl.range(begin, tl.minimum(begin + SPAN, longest), BN, num_stages=STAGES):
            n = t + tile
            inside = n < longest
            page = tl.load(pages_ptr + n // PAGE, mask=inside, other=0)
            at = n % PAGE
            key = tl.load(k_ptr + (page * page_stride + at * D)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
            product = tl.dot(key, q, input_precision=PRECISION)
            product = tl.where(product < 0.0, 0.0, product) * w[None, :]
            x = tl.sum(tl.reshape(product, [BN, TOGETHER, HEADS]), 2)
            if PACKED:
                scale = tl.load(s_ptr + page * (page_stride // 4) + PAGE * D // 4 + at, mask=inside, other=0.0)
                x = x * scale[:, None]
            place = query.to(tl.int64)[None, :] * room + n[:, None]
            tl.store(keys_ptr + place, _ordered(x), mask=(n[:, None] < visible[None, :]) & mine[None, :])


class _Scratch(NamedTuple):
    keys: Tensor
    hist: Tensor
    candidates: Tensor
    control: Tensor


_scratch: dict[tuple[object, ...], _Scratch] = {}


def _groups(programs: int, device: torch.device) -> int:
    """Room for the counts of all programs of a query: one size for a device, since kernels are compiled for it."""
    return 1 if programs == 1 else triton.next_power_of_2(2 * multiprocessors(device))


def _new_scratch(device: torch.device, queries: int, programs: int, room: int) -> _Scratch:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=device)

    return _Scratch(
        torch.empty(queries, room, dtype=torch.int32, device=device),
        zeros(queries, _COPIES + _ROUNDS, _BINS),
        zeros(queries, 2, _CANDIDATES),
        zeros(queries, _CONTROL + 2 * _groups(programs, device)),
    )


def _scratch_for(device: torch.device, queries: int, programs: int, room: int) -> _Scratch:
    """Zeroed once, left clean by every launch; launches of a device must follow each other, as on one stream they do."""
    key = (device, queries, programs, room)
    if key not in _scratch:
        _scratch[key] = _new_scratch(device, queries, programs, room)
    return _scratch[key]


class Tiles(NamedTuple):
    """How a launch is cut: programs per query, entries per tile and per scan, entries from which to guess, warps, stages."""

    programs: int
    tile: int
    scan: int
    guess_from: int
    warps: int
    stages: int


def tiles_for(queries: int, entries: int, processors: int, page: int) -> Tiles:
    """The cut that was fastest in the notes' measurements: two programs per processor, at least 256 entries each."""
    per_query = max(1, min(2 * processors // queries, -(-entries // 256)))
    programs = 1 << (per_query.bit_length() - 1)
    share = -(-entries // programs)
    tile = min(page, 64) if share <= 1024 or page < 64 else 128
    scan = max(64, min(512, 1 << max(share - 1, 1).bit_length()))
    return Tiles(programs, max(16, tile), scan, _GUESS_FROM, 4, 6)


def index_select(
    queries: Tensor, weights: Tensor, keys: Tensor, page_table: Tensor, sequence: Tensor, visible: Tensor, k: int
) -> Tensor:
    """See the reference; returns K = min(k, entries that fit the page table) columns, since `visible` stays on the device.

    Keys uint8 [pages, bytes] (packed FP8, see the reference) want e4m3 queries. More than a few queries are scored into a
    bounded buffer and selected from there, one program each.
    """
    if queries.shape[2] != triton.next_power_of_2(queries.shape[2]):  # the kernels hold whole keys in one tile
        return reference.index_select(queries, weights, keys, page_table, sequence, visible, k)
    packed = keys.dtype == torch.uint8
    page = keys.shape[1] // index_key_page_bytes(queries.shape[2], 1) if packed else keys.shape[1]
    entries = page_table.shape[1] * page
    out = torch.empty(queries.shape[0], min(k, entries), dtype=torch.int32, device=keys.device)
    if len(out) <= FEW_QUERIES:
        _launch_resident(queries, weights, keys, page_table, sequence, visible, out, page)
        return out
    rows = max(8, min(len(out), _BUFFER // (entries + 1024)) // 8 * 8)
    for first in range(0, len(out), rows):
        part = slice(first, first + rows)
        _launch_scored(queries[part], weights[part], keys, page_table, sequence[part], visible[part], out[part], page)
    return out


def _launch_scored(
    queries: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    sequence: Tensor,
    visible: Tensor,
    out: Tensor,
    page: int,
) -> None:
    """Score a bounded number of queries into scratch memory, then select with one program each."""
    (count, heads, width), packed = queries.shape, keys.dtype == torch.uint8
    entries = page_table.shape[1] * page
    tiles = Tiles(1, 1024, 1024, _GUESS_FROM_SCORED, 4, 3)
    room = triton.cdiv(entries, 16) * 16 + 1024
    if count <= _KEPT_QUERIES:
        cleared = _scratch_for(keys.device, triton.next_power_of_2(count), 1, 0)
    else:
        cleared = _new_scratch(keys.device, count, 1, 0)
    scratch = cleared._replace(keys=torch.empty(count, room, dtype=torch.int32, device=keys.device))
    padded = max(16, triton.next_power_of_2(heads))
    together = max(1, 128 // padded)
    span = 4096 if entries > 32768 else 1024
    _score_kernel[(triton.cdiv(entries, span), triton.cdiv(count, together))](
        queries.contiguous() if packed else queries.to(keys.dtype).contiguous(),
        weights.float().contiguous(),
        keys.view(torch.float8_e4m3fn) if packed else keys,
        keys.view(torch.float32) if packed else weights,
        page_table,
        sequence,
        visible,
        scratch.keys,
        count,
        page_table.stride(0),
        keys.stride(0),
        room,
        H=heads,
        HEADS=padded,
        D=width,
        PAGE=page,
        BN=128 if not interpreted() else 32,
        SPAN=span,
        TOGETHER=together,
        PACKED=packed,
        PRECISION="ieee" if keys.dtype == torch.float32 else "tf32",
        STAGES=4,
        num_warps=8,
    )
    _launch(queries, weights, keys, page_table, sequence, visible, out, page, tiles, scratch)


def _bucket(entries: int) -> int:
    """The power of two that launches are cut and scratch is kept for, so that a growing conversation reuses both."""
    return max(1024, triton.next_power_of_2(entries))


_resident: dict[tuple[object, ...], Tiles] = {}


def _launch_resident(
    queries: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    sequence: Tensor,
    visible: Tensor,
    out: Tensor,
    page: int,
) -> None:
    """Launch with as many programs as can be resident together.

    The first launch of a case is a cooperative one, which the driver refuses when the programs do not all fit, instead
    of letting them wait for each other for ever; then half as many are tried. Later launches do without (5 us each).
    """
    entries = _bucket(page_table.shape[1] * page)
    case = (keys.device, keys.dtype, queries.shape, entries, page)
    arguments = (queries, weights, keys, page_table, sequence, visible, out, page)
    if case in _resident:
        _launch(*arguments, _resident[case])
        return
    tiles = tiles_for(len(out), entries, multiprocessors(keys.device), page)
    if interpreted():
        tiles = tiles._replace(programs=1)  # it runs programs one after another, which cannot wait for each other
    while True:
        try:
            _launch(*arguments, tiles, checked=tiles.programs > 1)
        except RuntimeError as error:
            if "cooperative" not in str(error) or tiles.programs == 1:
                raise
            tiles = tiles._replace(programs=tiles.programs // 2)
        else:
            _resident[case] = tiles
            return


def _launch(
    queries: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    sequence: Tensor,
    visible: Tensor,
    out: Tensor,
    page: int,
    tiles: Tiles,
    scratch: _Scratch | None = None,
    stop: int = 9,
    checked: bool = False,
) -> None:
    (count, heads, width), packed = queries.shape, keys.dtype == torch.uint8
    scored = scratch is not None  # the keys are there already
    assert keys.is_contiguous() and page_table.stride(1) == 1 and out.is_contiguous()
    assert not packed or queries.dtype == torch.float8_e4m3fn, "packed index keys want e4m3 queries"
    most = _bucket(page_table.shape[1] * page)
    if scratch is None:
        scratch = _scratch_for(keys.device, count, tiles.programs, most + 1024)
    queries = queries.contiguous() if packed else queries.to(keys.dtype).contiguous()
    _select_kernel[(count * tiles.programs,)](
        queries,
        weights.float().contiguous(),
        keys.view(torch.float8_e4m3fn) if packed else keys,
        keys.view(torch.float32) if packed else weights,
        page_table,
        sequence,
        visible,
        out,
        scratch.keys,
        scratch.hist,
        scratch.candidates,
        scratch.control,
        out.shape[1],
        page_table.stride(0),
        keys.stride(0),
        scratch.keys.shape[1],
        tiles.programs,
        tiles.guess_from,
        GROUPS=_groups(tiles.programs, keys.device),
        H=heads,
        HEADS=max(16, triton.next_power_of_2(heads)),
        D=width,
        PAGE=page,
        BN=tiles.tile,
        SCAN=tiles.scan,
        SINGLE=triton.cdiv(triton.cdiv(most, tiles.tile), tiles.programs) * tiles.tile <= tiles.scan,
        BINS=_BINS,
        COPIES=_COPIES,
        ROUNDS=_ROUNDS,
        CANDIDATES=_CANDIDATES,
        CONTROL=_CONTROL,
        PACKED=packed,
        PRECISION="ieee" if keys.dtype == torch.float32 else "tf32",
        STAGES=tiles.stages,
        SCORED=scored,
        STOP=stop,
        num_warps=tiles.warps,
        launch_cooperative_grid=checked,
    )
