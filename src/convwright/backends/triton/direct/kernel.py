"""The kernel: a forward convolution with few channels, in which each thread sums its outputs by itself.

There is no matrix product, so no idle columns of tiles. Inputs are read once from memory and again from the cache for
other taps. A thread computes several output rows that are one dilation apart, for some channels: the last tap of one
row reads the same input as the tap before for the next row. If an image is too small to keep a GPU busy, the warps of a
block split the input channels, and add their sums at the end. In 3-D the rows of a thread are in one plane, and the
input planes of its taps are summed one after another, as channels are. An input gradient is such a convolution of dy,
which may be multiplied by an activation's derivative when it is read. With strides it is one convolution per phase of
the input's pixels, and a thread computes all phases.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated, derived
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.loading import loaded

# The sums of a thread: some rows of the output, over all channels and taps.


@triton.jit
def _tap(w, r, s, W_R: tl.constexpr, W_S: tl.constexpr, R: tl.constexpr, S: tl.constexpr, FLIP: tl.constexpr):
    """The offset of a tap's weight, with taps in the order in which they are read."""
    return w + ((R - 1 - r if FLIP else r) * W_R + (S - 1 - s if FLIP else s) * W_S)


# fmt: off
@triton.jit
def _added(
    sums, value, taps, OUTPUTS: tl.constexpr, R: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr,
    READ: tl.constexpr,
):
    # fmt: on
    """The sums plus the contribution of input row READ. ``taps`` are the weights (r, k) of this column of taps."""
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
def _with_column(
    sums, at, z_at, w, k_first, there, h, v, s,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_H: tl.constexpr, X_W: tl.constexpr, W_K: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, RAGGED: tl.constexpr,
    OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """The sums plus one column of taps of one more input channel, or of one plane of it, on lanes where it is ``there``
    (on all lanes unless RAGGED). ``at`` is the offset that the first tap reads for the first row, ``w`` are the
    weights."""
    taps = ()
    for r in tl.static_range(R):
        tap = _tap(w, r, s, W_R, W_S, R, S, FLIP)
        for out in tl.static_range(OUTPUTS):
            # After the last channel, that channel is read again.
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
def _over_channels(
    sums, at, z_at, w, k_first, group, d, h, v, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, MASKED: tl.constexpr, PADDED_D: tl.constexpr,
    LARGE: tl.constexpr, OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """The sums over all input channels. (d, h, v) is the position that the first tap reads for the first row, and
    ``at`` its offset in the first channel."""
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
        if LARGE:
            for s in tl.range(S):
                sums = _with_column(
                    sums, at + plane, z_at + plane, w_plane, k_first, there, h, v, s, H, W, K, R, S, X_H, X_W,
                    W_K, W_R, W_S, DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, C % SPLIT > 0, OUTPUTS,
                    DERIVATIVE,
                )  # fmt: skip
        else:
            for s in tl.static_range(S):
                sums = _with_column(
                    sums, at + plane, z_at + plane, w_plane, k_first, there, h, v, s, H, W, K, R, S, X_H, X_W,
                    W_K, W_R, W_S, DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, C % SPLIT > 0, OUTPUTS,
                    DERIVATIVE,
                )  # fmt: skip
    return sums


# fmt: off
@triton.jit
def sums_of_rows(
    x, z, w, k_first, group, n, g, plane, p, q, first_q, last_q, A: tl.constexpr, B: tl.constexpr, E: tl.constexpr,
    PHASES_D: tl.constexpr, PHASES_H: tl.constexpr, PHASES_W: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    DEPTH: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, LANES: tl.constexpr,
    LARGE: tl.constexpr, OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """Sums in fp32 over every SPLIT-th input channel, beginning with ``group``, for phases A, B and E of the three
    dimensions, each of ROWS rows and each of OUTPUTS channels."""
    T: tl.constexpr = PHASES_D[A][0]
    R: tl.constexpr = PHASES_H[B][0]
    S: tl.constexpr = PHASES_W[E][0]
    FRONT: tl.constexpr = PHASES_D[A][1]
    TOP: tl.constexpr = PHASES_H[B][1]
    LEFT: tl.constexpr = PHASES_W[E][1]
    LAST: tl.constexpr = (ROWS - 1) * APART + R - 1  # of the rows that are read
    LAST_D: tl.constexpr = (T - 1) * DILATION_D
    PADDED_D: tl.constexpr = FRONT > 0 or (DEPTH - 1) * STRIDE_D - FRONT + LAST_D >= D

    sums = ()
    for _ in tl.static_range(ROWS * OUTPUTS):
        sums += (tl.zeros((LANES,), tl.float32),)
    if T * R * S > 0:
        d = plane * STRIDE_D - FRONT
        h = p * STRIDE_H - TOP
        v = q * STRIDE_W - LEFT
        w += PHASES_D[A][2] + PHASES_H[B][2] + PHASES_W[E][2]
        at = (n * X_N + h * X_H) + (g * (C * X_C) + v * X_W)
        if DEPTH > 1 or FRONT != 0:
            at += d * X_D
        z_at = x + at if DERIVATIVE == "none" else z + at
        first_v = first_q * STRIDE_W - LEFT
        last_v = last_q * STRIDE_W - LEFT + (S - 1) * DILATION_W
        inside = (h >= 0) & (h + LAST * DILATION_H < H) & (first_v >= 0) & (last_v < W)
        if PADDED_D:
            inside = inside & (d >= 0) & (d + LAST_D < D)
        if inside:
            sums = _over_channels(
                sums, x + at, z_at, w, k_first, group, d, h, v, T, R, S, C, D, H, W, K, X_C, X_D, X_H, X_W,
                W_K, W_C, W_T, W_R, W_S, DILATION_D, DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, False, PADDED_D,
                LARGE, OUTPUTS, DERIVATIVE,
            )  # fmt: skip
        else:
            sums = _over_channels(
                sums, x + at, z_at, w, k_first, group, d, h, v, T, R, S, C, D, H, W, K, X_C, X_D, X_H, X_W,
                W_K, W_C, W_T, W_R, W_S, DILATION_D, DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, True, PADDED_D,
                LARGE, OUTPUTS, DERIVATIVE,
            )  # fmt: skip
    return sums


@triton.jit
def _place(unit, g, G: tl.constexpr, Q: tl.constexpr, ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr):
    """The group and the column of each lane from ``unit``, its index in a row. After the last one comes a column
    outside the image, or the last group again."""
    q = unit
    if ACROSS:
        g = unit % G if CHANNELS_LAST else tl.minimum(unit // Q, G - 1)
        q = unit // G if CHANNELS_LAST else unit % Q
    return g, q


@triton.jit
def _total(sums, SPLIT: tl.constexpr, BQ: tl.constexpr):
    """The sums of all groups of lanes, added."""
    return tl.sum(tl.reshape(sums, (SPLIT, BQ)), axis=0) if SPLIT > 1 else sums


# fmt: off
@triton.jit
def _write(
    y, bias, residual, sums, n, g, k_first, plane, p, B: tl.constexpr, unit, column, E: tl.constexpr,
    K: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    UP_D: tl.constexpr, UP_H: tl.constexpr, UP_W: tl.constexpr, UNITS: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    GAP: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, SPLIT: tl.constexpr,
    OUTPUTS: tl.constexpr, TOGETHER: tl.constexpr,
):
    # fmt: on
    """The results of phase B of the rows and phase E of the columns (with TOGETHER, also the next phase)."""
    q = column * (UP_W // TOGETHER) + E
    for row in tl.static_range(ROWS):
        h = (p + row * GAP) * UP_H + B
        for place in tl.static_range(OUTPUTS):
            k = k_first + place
            kept = h < P
            if UNITS % BQ:
                kept = kept & (unit < UNITS * TOGETHER)
            if K % OUTPUTS:
                kept = kept & (k < K)
            if Q % UP_W:
                kept = kept & (q < Q)
            if Z % UP_D:
                kept = kept & (plane < Z)
            total = _total(sums[row * OUTPUTS + place], SPLIT, BQ)
            if TOGETHER == 2:
                total = tl.interleave(total, _total(sums[(ROWS + row) * OUTPUTS + place], SPLIT, BQ))
            at = n * Y_N + (g * K + k) * Y_K + h * Y_P + q * Y_Q
            if Z > 1:
                at += plane * Y_Z
            if RESIDUAL:
                total += tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
            if BIAS:
                total += tl.load(bias + (g * K + (tl.minimum(k, K - 1) if K % OUTPUTS else k))).to(tl.float32)
            tl.store(y + at, activated(total, ACTIVATION, y.dtype.element_ty).to(y.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def direct(
    x, w, bias, residual, y, z,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    PHASES_D: tl.constexpr, PHASES_H: tl.constexpr, PHASES_W: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, DERIVATIVE: tl.constexpr, WIDE: tl.constexpr,
    GAP: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, SPLIT: tl.constexpr,
    ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr, LARGE: tl.constexpr, OUTPUTS: tl.constexpr,
    TOGETHER: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), in G groups with C input and K output channels each. With a
    DERIVATIVE, x is multiplied by the derivative of this activation at z, which has x's layout; otherwise z is None.

    X_*, W_* and Y_* are strides; WIDE selects 64-bit offsets. Along y each dimension alternates between its PHASES,
    each with a number of taps, the offset of its first tap, and that tap's place in the weight; a convolution has one
    phase. For each phase a program computes OUTPUTS channels of each group, and BQ columns of ROWS rows that are GAP
    apart; their inputs are APART dilations apart. SPLIT groups of lanes sum equal shares of the input channels. Lanes
    run across ACROSS groups: through the columns of one group after another, or, with CHANNELS_LAST, through all groups
    of one column after another. The columns of taps of a LARGE filter are a loop. TOGETHER phases of columns are stored
    together.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    UP_D: tl.constexpr = len(PHASES_D)
    UP_H: tl.constexpr = len(PHASES_H)
    UP_W: tl.constexpr = len(PHASES_W)
    DEPTH: tl.constexpr = (Z + UP_D - 1) // UP_D  # of a phase, as are these
    WIDTH: tl.constexpr = (Q + UP_W - 1) // UP_W
    SPANS: tl.constexpr = ((P + UP_H - 1) // UP_H + ROWS * GAP - 1) // (ROWS * GAP)
    UNITS: tl.constexpr = WIDTH * G if ACROSS else WIDTH
    COLUMNS: tl.constexpr = (UNITS + BQ - 1) // BQ
    K_BLOCKS: tl.constexpr = (K + OUTPUTS - 1) // OUTPUTS

    # Programs for other channels, which read the same pixels, are adjacent.
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
    if DEPTH > 1:
        plane = image % DEPTH
        image = image // DEPTH
    n = image if ACROSS else image // G
    if WIDE:
        n = n.to(tl.int64)
    lane = tl.arange(0, SPLIT * BQ)
    group = lane // BQ if SPLIT > 1 else 0
    g, q = _place(first + lane % BQ, image % G, G, WIDTH, ACROSS, CHANNELS_LAST)
    w += g * W_G
    _, first_q = _place(first, 0, G, WIDTH, ACROSS, CHANNELS_LAST)
    _, last_q = _place(first + BQ - 1, 0, G, WIDTH, ACROSS, CHANNELS_LAST)
    if ACROSS and not CHANNELS_LAST:
        first_q, last_q = 0, WIDTH - 1

    unit = first * TOGETHER + tl.arange(0, BQ * TOGETHER)
    g_kept, column = _place(unit, image % G, G, WIDTH * TOGETHER, ACROSS, CHANNELS_LAST)
    for a in tl.static_range(UP_D):
        for b in tl.static_range(UP_H):
            for e in tl.static_range(0, UP_W, TOGETHER):
                sums = ()
                for each in tl.static_range(TOGETHER):
                    sums += sums_of_rows(
                        x, z, w, k_first, group, n, g, plane, p, q, first_q, last_q, a, b, e + each,
                        PHASES_D, PHASES_H, PHASES_W, C, D, H, W, K, X_N, X_C, X_D, X_H, X_W, W_K, W_C, W_T, W_R, W_S,
                        STRIDE_D, STRIDE_H, STRIDE_W, DILATION_D, DILATION_H, DILATION_W, FLIP, DEPTH, APART, ROWS,
                        SPLIT, SPLIT * BQ, LARGE, OUTPUTS, DERIVATIVE,
                    )  # fmt: skip
                _write(
                    y, bias, residual, sums, n, g_kept, k_first, plane * UP_D + a, p, b, unit, column, e,
                    K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, UP_D, UP_H, UP_W, UNITS, BIAS, RESIDUAL, ACTIVATION,
                    GAP, ROWS, BQ, SPLIT, OUTPUTS, TOGETHER,
                )  # fmt: skip
