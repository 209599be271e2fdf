"""What becomes of the sums that threads have: those of a channel are added up, and stored."""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.parts.kernel import weight_at


@triton.jit
def side_by_side(sums, COUNT: tl.constexpr, LEVELS: tl.constexpr):
    """All sums as the last dimension of one tensor, and zeros behind them up to a power of two."""
    # What is written out one by one takes the compiler long, and each sum over lanes a barrier.
    level = sums
    for _ in tl.static_range(COUNT, 1 << LEVELS):
        level += (tl.zeros_like(sums[0]),)
    for depth in tl.static_range(LEVELS):
        joined = ()
        for i in tl.static_range(1 << (LEVELS - depth - 1)):
            joined += (tl.join(level[i], level[i + (1 << (LEVELS - depth - 1))]),)
        level = joined
    return level[0]


@triton.jit
def any_lost(sums, COUNT: tl.constexpr):
    """Whether any of them is NaN on any lane."""
    lost = sums[0] != sums[0]
    for i in tl.static_range(COUNT - 1):
        lost = lost | (sums[i + 1] != sums[i + 1])
    return tl.max(lost.to(tl.int32), axis=0) > 0


@triton.jit
def of_channels(total, CHANNELS: tl.constexpr, LANES: tl.constexpr, COUNT: tl.constexpr, ACROSS: tl.constexpr):
    """COUNT sums of each channel's lanes, which lie in ACROSS warps."""
    # What a sum over warps leaves in shared memory lies so that all lanes meet in one bank: for 49 taps of 32 channels
    # that was two thirds of the kernel's time. Halves are exchanged instead, and added.
    total = tl.sum(tl.reshape(total, (ACROSS, LANES // CHANNELS // ACROSS, CHANNELS * COUNT)), axis=1)
    if ACROSS > 1:
        left, right = tl.split(tl.permute(tl.reshape(total, (2, ACROSS // 2 * CHANNELS * COUNT)), (1, 0)))
        total = left + right
    if ACROSS > 2:
        left, right = tl.split(tl.permute(tl.reshape(total, (2, ACROSS // 4 * CHANNELS * COUNT)), (1, 0)))
        total = left + right
    tl.static_assert(ACROSS <= 4)
    return tl.reshape(total, (CHANNELS, COUNT))


# fmt: off
@triton.jit
def store(
    out, totals, places, channel, k_block, t, r_first, s_first,
    G: tl.constexpr, C: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    FLIP: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, PARTS: tl.constexpr,
):
    # fmt: on
    """Sums of each ``channel`` for a block of the plane ``t`` of taps at some ``places`` among all of a thread,
    (i, s, k, r)."""
    r = r_first + places % TAPS_H
    s = s_first + places // (TAPS_H * OUTPUTS) % TAPS_W
    tap = ((t * R + r) * S + s)[None, :]
    k = (channel // C * K + k_block)[:, None] + (places // TAPS_H % OUTPUTS)[None, :]
    c = (channel % C)[:, None] + (places // (TAPS_H * OUTPUTS * TAPS_W))[None, :]
    at = (k * (T * R * S) + tap) * C + c
    if PARTS == 1:
        at = weight_at(k, tap, c, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
    there = places < INPUTS * TAPS_W * OUTPUTS * TAPS_H
    if R % TAPS_H:
        there = there & (r < R)
    if S % TAPS_W:
        there = there & (s < S)
    kept = (channel < G * C)[:, None] & there[None, :]
    tl.store(out + at, totals.to(out.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def store_bias(
    out, totals, channel, k_block, block, G: tl.constexpr, C: tl.constexpr, K: tl.constexpr, OUTPUTS: tl.constexpr,
    LEVELS: tl.constexpr,
):
    # fmt: on
    """The sums of each output's gradient, which all channels of a group have, and all blocks of taps: the first one
    stores them."""
    k = tl.arange(0, 1 << LEVELS)
    kept = ((channel < G * C) & (channel % C == 0) & (block == 0))[:, None] & (k < OUTPUTS)[None, :]
    at = (channel // C * K + k_block)[:, None] + k[None, :]
    tl.store(out + at, totals.to(out.dtype.element_ty), mask=kept)
