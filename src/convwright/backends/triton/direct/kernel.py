"""The kernel: a forward convolution with few channels, each of whose elements one thread sums up by itself.

No matrix is multiplied, so nothing is wasted on a tile's idle columns; what is read is read once from memory, and
again from the cache for other taps. A thread computes several rows of the output that lie one dilation apart, of some
channels: what the last tap reads for one of them, the tap before reads for the next. Where an image has too few
elements to keep a GPU busy, the input channels are split among the warps of a block, whose sums are added up at the
end. Of a volume a thread's rows lie in one plane, and the planes that taps read for it are summed up one after another,
as channels are. The gradient of an input is such a convolution of dy, which is multiplied, where it is read, by an
activation's derivative.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated, derived
from convwright.backends.triton.loading import loaded


@triton.jit
def _tap(
    w, W_R: tl.constexpr, W_S: tl.constexpr, R: tl.constexpr, S: tl.constexpr, FLIP: tl.constexpr, TAP: tl.constexpr
):
    """A weight's place for one of the taps in the order in which they read."""
    PLACE: tl.constexpr = R * S - 1 - TAP if FLIP else TAP
    return w + (PLACE // S * W_R + PLACE % S * W_S)


# fmt: off
@triton.jit
def _added(
    sums, value, taps, OUTPUTS: tl.constexpr, R: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr,
    READ: tl.constexpr,
):
    # fmt: on
    """The sums with what was read of row READ, and ``taps`` is what that column's taps weigh, (r, k)."""
    more = ()
    for row in tl.static_range(ROWS):
        for k in tl.static_range(OUTPUTS):
            if row * APART <= READ and row * APART + R > READ:
                more += (sums[row * OUTPUTS + k] + value * taps[(READ - row * APART) * OUTPUTS + k],)
            else:
                more += (sums[row * OUTPUTS + k],)
    return more


# fmt: off
@triton.jit
def _with_channel(
    sums, at, z_at, w, k_first, there, h, v,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_H: tl.constexpr, X_W: tl.constexpr, W_K: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, RAGGED: tl.constexpr,
    OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """The sums with one more input channel, or one plane of it, where it is ``there``, which RAGGED says need not be so
    on every lane. ``at`` is where its first row's first tap reads, ``w`` are its weights."""
    for s in tl.static_range(S):
        taps = ()
        for r in tl.static_range(R):
            tap = _tap(w, W_R, W_S, R, S, FLIP, r * S + s)
            for out in tl.static_range(OUTPUTS):
                # Beyond the last channel that one is read again.
                k = tl.minimum(k_first + out, K - 1) if K % OUTPUTS else k_first + out
                weight = tl.load(tap + k * W_K, mask=there, other=0.0) if RAGGED else tl.load(tap + k * W_K)
                taps += (weight.to(tl.float32),)
        v_read = v + s * DILATION_W
        for row in tl.static_range((ROWS - 1) * APART + R):
            behind = row * DILATION_H * X_H + s * DILATION_W * X_W
            real = there
            if MASKED:
                h_read = h + row * DILATION_H
                real = (h_read >= 0) & (h_read < H) & (v_read >= 0) & (v_read < W) & there
            value = loaded(at + behind, real, MASKED or RAGGED)
            if DERIVATIVE != "none":
                value = derived(value, loaded(z_at + behind, real, MASKED or RAGGED), DERIVATIVE)
            sums = _added(sums, value, taps, OUTPUTS, R, APART, ROWS, row)
    return sums


# fmt: off
@triton.jit
def _sums(
    x, z_first, w, k_first, group, h, v,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, LANES: tl.constexpr, MASKED: tl.constexpr,
    d, D: tl.constexpr, T: tl.constexpr, X_D: tl.constexpr, W_T: tl.constexpr, DILATION_D: tl.constexpr,
    PADDED_D: tl.constexpr, OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """For each of ROWS rows, each of OUTPUTS channels: sums in fp32 over every SPLIT-th input channel, of which
    ``group`` is the first. (d, h, v) is where the first row's first tap reads, and ``x`` that place in the first
    channel."""
    sums = ()
    for _ in tl.static_range(ROWS * OUTPUTS):
        sums += (tl.zeros((LANES,), tl.float32),)
    for step in tl.range((C + SPLIT - 1) // SPLIT * T):
        c = (step // T if T > 1 else step) * SPLIT + group
        plane = c * X_C
        w_plane = w + c * W_C
        there = c < C
        if T > 1:
            t = step % T
            plane += t * (DILATION_D * X_D)
            w_plane += (T - 1 - t if FLIP else t) * W_T
        if PADDED_D and MASKED:
            d_read = d + step % T * DILATION_D
            there = there & (d_read >= 0) & (d_read < D)
        sums = _with_channel(
            sums, x + plane, z_first + plane, w_plane, k_first, there, h, v, H, W, K, R, S, X_H, X_W, W_K, W_R, W_S,
            DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, C % SPLIT > 0, OUTPUTS, DERIVATIVE,
        )  # fmt: skip
    return sums


@triton.jit
def _place(unit, g, G: tl.constexpr, Q: tl.constexpr, ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr):
    """The group and the column of each lane, whose place among all of a row is ``unit``."""
    q = unit
    if ACROSS:
        g = unit % G if CHANNELS_LAST else unit // Q
        q = unit // G if CHANNELS_LAST else unit % Q
    return g, q


# fmt: off
@triton.jit
def direct(
    x, w, bias, residual, y, z,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    D: tl.constexpr, T: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, W_T: tl.constexpr, Y_Z: tl.constexpr,
    STRIDE_D: tl.constexpr, FRONT: tl.constexpr, DILATION_D: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, WIDE: tl.constexpr,
    GAP: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, SPLIT: tl.constexpr,
    ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr, OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), in G groups with C input and K output channels each. With a
    DERIVATIVE x is multiplied by that of this activation at z, which lies as x does, and is None without.

    X_*, W_* and Y_* are strides; FRONT, TOP and LEFT are padding; WIDE makes offsets 64 bits wide. A program computes
    OUTPUTS channels of each group, BQ columns of ROWS rows that are GAP apart; what is read for each lies APART
    dilations behind what is read for the one before. Each of SPLIT groups of lanes sums up as many of the input
    channels. ACROSS groups lanes run, through the columns of one after those of another, or, with CHANNELS_LAST,
    through all groups of one column after another.
    """
    UNITS: tl.constexpr = Q * G if ACROSS else Q
    COLUMNS: tl.constexpr = (UNITS + BQ - 1) // BQ
    SPANS: tl.constexpr = (P + ROWS * GAP - 1) // (ROWS * GAP)
    K_BLOCKS: tl.constexpr = (K + OUTPUTS - 1) // OUTPUTS
    LAST: tl.constexpr = (ROWS - 1) * APART + R - 1  # of the rows that are read
    LAST_D: tl.constexpr = (T - 1) * DILATION_D
    PADDED_D: tl.constexpr = FRONT > 0 or (Z - 1) * STRIDE_D + LAST_D >= D

    # Programs for other channels, which read the same pixels, lie side by side.
    program = tl.program_id(0)
    k_first = 0
    if K_BLOCKS > 1:
        k_first = program % K_BLOCKS * OUTPUTS
        program = program // K_BLOCKS
    first = program % COLUMNS * BQ
    span = program // COLUMNS
    p = span // GAP % SPANS * (ROWS * GAP) + span % GAP
    image = span // (GAP * SPANS)
    plane = 0
    if Z > 1:
        plane = image % Z
        image = image // Z
    d = plane * STRIDE_D - FRONT
    n = image if ACROSS else image // G
    if WIDE:
        n = n.to(tl.int64)
    lane = tl.arange(0, SPLIT * BQ)
    group = lane // BQ if SPLIT > 1 else 0
    h = p * STRIDE_H - TOP
    g, q = _place(tl.minimum(first + lane % BQ, UNITS - 1), image % G, G, Q, ACROSS, CHANNELS_LAST)
    v = q * STRIDE_W - LEFT

    w += g * W_G
    x_first = (n * X_N + h * X_H) + (g * (C * X_C) + v * X_W)
    if Z > 1 or FRONT > 0:
        x_first += d * X_D
    z_first = x + x_first if DERIVATIVE == "none" else z + x_first
    _, first_q = _place(first, 0, G, Q, ACROSS, CHANNELS_LAST)
    _, last_q = _place(min(first + BQ, UNITS) - 1, 0, G, Q, ACROSS, CHANNELS_LAST)
    if ACROSS and not CHANNELS_LAST:
        first_q, last_q = 0, Q - 1
    first_v = first_q * STRIDE_W - LEFT
    last_v = last_q * STRIDE_W - LEFT + (S - 1) * DILATION_W
    inside = (h >= 0) & (h + LAST * DILATION_H < H) & (first_v >= 0) & (last_v < W)
    if PADDED_D:
        inside = inside & (d >= 0) & (d + LAST_D < D)
    if inside:
        sums = _sums(
            x + x_first, z_first, w, k_first, group, h, v, C, H, W, K, R, S, X_C, X_H, X_W, W_K, W_C, W_R, W_S,
            DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, SPLIT * BQ, False,
            d, D, T, X_D, W_T, DILATION_D, PADDED_D, OUTPUTS, DERIVATIVE,
        )  # fmt: skip
    else:
        sums = _sums(
            x + x_first, z_first, w, k_first, group, h, v, C, H, W, K, R, S, X_C, X_H, X_W, W_K, W_C, W_R, W_S,
            DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, SPLIT * BQ, True,
            d, D, T, X_D, W_T, DILATION_D, PADDED_D, OUTPUTS, DERIVATIVE,
        )  # fmt: skip

    unit = first + tl.arange(0, BQ)
    g, q = _place(tl.minimum(unit, UNITS - 1), image % G, G, Q, ACROSS, CHANNELS_LAST)
    for out in tl.static_range(ROWS):
        row = p + out * GAP
        for place in tl.static_range(OUTPUTS):
            k = k_first + place
            kept = (unit < UNITS) & (row < P)
            if K % OUTPUTS:
                kept = kept & (k < K)
            total = sums[out * OUTPUTS + place]
            if SPLIT > 1:
                total = tl.sum(tl.reshape(total, (SPLIT, BQ)), axis=0)
            at = n * Y_N + (g * K + k) * Y_K + row * Y_P + q * Y_Q
            if Z > 1:
                at += plane * Y_Z
            if RESIDUAL:
                total += tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
            if BIAS:
                total += tl.load(bias + (g * K + (tl.minimum(k, K - 1) if K % OUTPUTS else k))).to(tl.float32)
            total = activated(total, ACTIVATION)
            tl.store(y + at, total.to(y.dtype.element_ty), mask=kept)
