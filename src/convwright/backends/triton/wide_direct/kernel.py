"""The kernel for few channels whose threads each compute a patch: some rows of some adjacent columns.

It computes the same as `direct` and reads less: the elements of a row are read once for all columns and all taps of a
patch, several per instruction, while `direct` reads one element per column of taps. In NCHW the elements of one
instruction are columns, and a program stays within one group, so that its lanes share the weights. With channels last
they are groups, and lanes run across the groups.

A filter with too many taps to unroll has a loop over its rows, each of which reads its own input. With channels last a
patch may instead be a strip of so many rows that the input rows form a loop. In NCHW a thread may keep the input of its
patch, for few channels, and loop over output channels.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.wide_direct.rows import row_inside, weights_read, write_row, write_strips

# The sums of a thread, with all products of its patch with a plane or a row of taps unrolled.


# fmt: off
@triton.jit
def added(
    sums, columns, taps, PLACES: tl.constexpr, READ: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr, GROUPS: tl.constexpr,
):
    # fmt: on
    """The sums, (row, k, column, group), plus the products with input row READ, (column, group); ``taps`` are the
    weights, (r, s, k, group)."""
    more = ()
    for row in tl.static_range(ROWS):
        for k in tl.static_range(OUTPUTS):
            for column in tl.static_range(COLS):
                for group in tl.static_range(GROUPS):
                    total = sums[((row * OUTPUTS + k) * COLS + column) * GROUPS + group]
                    if row * APART <= READ and row * APART + R > READ:
                        for s in tl.static_range(S):
                            weight = taps[(((READ - row * APART) * S + s) * OUTPUTS + k) * GROUPS + group]
                            total = tl.fma(columns[PLACES[s][column] * GROUPS + group], weight, total)
                    more += (total,)
    return more


# fmt: off
@triton.jit
def summed_up(
    x, z, w, k_first, group, d, h, v, there, RAGGED: tl.constexpr, LAST_H: tl.constexpr, LAST_V: tl.constexpr,
    DEPTH: tl.constexpr, C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr,
    X_H: tl.constexpr, X_W: tl.constexpr, W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr,
    W_R: tl.constexpr, W_S: tl.constexpr, STRIDE_D: tl.constexpr, FRONT: tl.constexpr, TOP: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, FLIP: tl.constexpr, DERIVATIVE: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr,
    PIECES: tl.constexpr, PLACES: tl.constexpr, BY_ROW: tl.constexpr, SPLIT: tl.constexpr, VECTOR: tl.constexpr,
    LANES: tl.constexpr,
):
    # fmt: on
    """The patch's sums in fp32 over every SPLIT-th input channel, beginning with ``group``. (d, h, v) is the position
    that the patch's first tap reads without padding, and ``x`` its address in the first channel."""
    GROUPS: tl.constexpr = 1 if VECTOR == 0 else VECTOR
    ROWS_OF_TAPS: tl.constexpr = 1 if BY_ROW else R
    STEPS: tl.constexpr = R if BY_ROW else 1
    PADDED_D: tl.constexpr = FRONT > 0 or (DEPTH - 1) * STRIDE_D - FRONT + (T - 1) * DILATION_D >= D

    sums = ()
    for _ in tl.static_range(ROWS * OUTPUTS * COLS * GROUPS):
        sums += (tl.zeros((LANES,), tl.float32),)
    for step in tl.range((C + SPLIT - 1) // SPLIT * T * STEPS):
        offset = 0
        w_plane = w
        real = there
        if C > 1:
            c = step // (T * STEPS) * SPLIT + group
            offset += c * X_C
            w_plane += c * W_C
            if C % SPLIT:
                real = real & (c < C)
        if T > 1:
            t = step // STEPS % T
            offset += t * (DILATION_D * X_D)
            w_plane += (T - 1 - t if FLIP else t) * W_T
        if PADDED_D:
            d_read = d + step // STEPS % T * DILATION_D
            real = real & (d_read >= 0) & (d_read < D)
        r = 0
        if BY_ROW:
            r = step % R
            offset += r * (DILATION_H * X_H)
            w_plane += (R - 1 - r if FLIP else r) * W_R
        taps = weights_read(
            w_plane, k_first, real, ROWS_OF_TAPS, S, K, W_G, W_K, W_R, W_S, FLIP, OUTPUTS, SPLIT, VECTOR
        )
        for row in tl.static_range((ROWS - 1) * APART + ROWS_OF_TAPS):
            at = offset + row * DILATION_H * X_H
            columns = row_inside(
                x + at, z + at if DERIVATIVE != "none" else x, h + (row + r) * DILATION_H, v, real,
                RAGGED or C % SPLIT > 0 or PADDED_D, row * DILATION_H < TOP,
                LAST_H + (row + R - ROWS_OF_TAPS) * DILATION_H >= H, H, PIECES, W, LAST_V, X_C, X_W, VECTOR, DERIVATIVE,
            )  # fmt: skip
            sums = added(sums, columns, taps, PLACES, row, ROWS_OF_TAPS, S, APART, ROWS, COLS, OUTPUTS, GROUPS)
    return sums


# The work of a thread that keeps the input of its patch, for few input channels: output channels are a loop. Each turn
# computes some output channels of the patch. Memory latency is paid once, not per input channel, and a pixel is read
# once, not per few output channels.

# fmt: off
@triton.jit
def write_channels(
    x, z, w, y, bias, residual, there, n, g, k_first, h, v, p, q, RAGGED: tl.constexpr, LAST_H: tl.constexpr,
    LAST_V: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, S: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, Y_N: tl.constexpr, Y_K: tl.constexpr,
    Y_P: tl.constexpr, Y_Q: tl.constexpr, TOP: tl.constexpr, DILATION_H: tl.constexpr, FLIP: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, DERIVATIVE: tl.constexpr, GAP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr, WRITTEN: tl.constexpr,
    PIECES: tl.constexpr, PLACES: tl.constexpr, TURNS: tl.constexpr, LANES: tl.constexpr,
):
    # fmt: on
    """Sum and store the patch of an image, with one plane and one tap along it, in TURNS times OUTPUTS channels,
    beginning with ``k_first``."""
    READ: tl.constexpr = (ROWS - 1) * APART + R

    read = ()
    for c in tl.static_range(C):
        for row in tl.static_range(READ):
            at = c * X_C + row * DILATION_H * X_H
            columns = row_inside(
                x + at, z + at if DERIVATIVE != "none" else x, h + row * DILATION_H, v, there, RAGGED,
                row * DILATION_H < TOP, LAST_H + row * DILATION_H >= H, H, PIECES, W, LAST_V, X_C, X_W, 0, DERIVATIVE,
            )  # fmt: skip
            read += (columns,)
    for turn in tl.range(TURNS):
        k = k_first + turn * OUTPUTS
        sums = ()
        for _ in tl.static_range(ROWS * OUTPUTS * COLS):
            sums += (tl.zeros((LANES,), tl.float32),)
        for c in tl.static_range(C):
            taps = weights_read(w + c * W_C, k, there, R, S, K, 0, W_K, W_R, W_S, FLIP, OUTPUTS, 1, 0)
            for row in tl.static_range(READ):
                sums = added(sums, read[c * READ + row], taps, PLACES, row, R, S, APART, ROWS, COLS, OUTPUTS, 1)
        for row in tl.static_range(ROWS):
            below = p + row * GAP
            write_row(
                y, bias, residual, sums, there & (below < P) if P % (ROWS * GAP) else there, n, g, k, 0, below, q, K,
                1, Q, Y_N, Y_K, 0, Y_P, Y_Q, BIAS, RESIDUAL, ACTIVATION, row * OUTPUTS * COLS, COLS, WRITTEN,
                OUTPUTS, 1, 0,
            )  # fmt: skip


# fmt: off
@triton.jit
def _place(
    program, lane, G: tl.constexpr, Z: tl.constexpr, UNITS: tl.constexpr, PATCHES: tl.constexpr, WIDTH: tl.constexpr,
    SPANS: tl.constexpr, GAP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
):
    # fmt: on
    """The patches of a program's lanes and whether they exist: image, group, plane, and the first row and column."""
    BLOCKS: tl.constexpr = (UNITS + PATCHES - 1) // PATCHES
    unit = program % BLOCKS * PATCHES + lane
    there = unit < UNITS
    g = program // BLOCKS
    if VECTOR > 0:
        g = unit % (G // VECTOR) * VECTOR
        unit = unit // (G // VECTOR)
    q = unit % WIDTH * COLS
    span = unit // WIDTH % SPANS
    p = span // GAP * (ROWS * GAP) + span % GAP
    image = unit // (WIDTH * SPANS)
    plane = 0
    if Z > 1:
        plane = image % Z
        image = image // Z
    if WIDE:
        image = image.to(tl.int64)
    return there, image, g, plane, p, q


# fmt: off
@triton.jit
def wide_direct(
    x, w, bias, residual, y, z,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, DILATION_D: tl.constexpr, DILATION_H: tl.constexpr,
    FLIP: tl.constexpr, W_FIRST: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, DERIVATIVE: tl.constexpr, WIDE: tl.constexpr,
    GAP: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr,
    WRITTEN: tl.constexpr, PIECES: tl.constexpr, PLACES: tl.constexpr, BY_ROW: tl.constexpr,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr, PATCHES: tl.constexpr, TURNS: tl.constexpr, KEPT: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), in G groups with C input and K output channels each. With a
    DERIVATIVE, x is multiplied by the derivative of this activation at z, which has x's layout; otherwise z is None.

    X_*, W_* and Y_* are strides; WIDE selects 64-bit offsets. W_FIRST is the offset of the first tap in the weight. A
    program has PATCHES patches of one group's images or, if VECTOR is not 0, of VECTOR groups per lane. A patch has
    COLS columns, in OUTPUTS channels of a group, of ROWS rows that are GAP apart; their inputs are APART dilations
    apart. SPLIT groups of lanes sum equal shares of the input channels. PIECES are the columns that a patch reads of a
    row, (first, width), and PLACES the indices among them of the patch's columns, for each tap; WRITTEN columns of a
    patch are stored together. BY_ROW makes the rows of a filter a loop. TURNS, the first and the end of a range, makes
    the input rows a loop: turn 0 would read what only a patch's first row needs, and no patch needs a turn outside the
    range. With KEPT a patch is read once, and the loop has KEPT times OUTPUTS channels.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    WIDTH: tl.constexpr = (Q + COLS - 1) // COLS
    SPANS: tl.constexpr = (P + ROWS * GAP - 1) // (ROWS * GAP) * GAP
    LAST_P: tl.constexpr = (SPANS // GAP - 1) * (ROWS * GAP) + GAP - 1
    UNITS: tl.constexpr = N * Z * SPANS * WIDTH * (1 if VECTOR == 0 else G // VECTOR)
    CHANNELS: tl.constexpr = OUTPUTS * KEPT if KEPT > 0 else OUTPUTS
    K_BLOCKS: tl.constexpr = (K + CHANNELS - 1) // CHANNELS
    RAGGED: tl.constexpr = UNITS % PATCHES > 0
    GROUPS: tl.constexpr = 1 if VECTOR == 0 else VECTOR

    # Programs for other channels, which read the same pixels, are adjacent.
    program = tl.program_id(0)
    k_first = 0
    if K_BLOCKS > 1:
        k_first = program % K_BLOCKS * CHANNELS
        program = program // K_BLOCKS
    lane = tl.arange(0, SPLIT * PATCHES)
    group = lane // PATCHES if SPLIT > 1 else 0
    there, n, g, plane, p, q = _place(
        program, lane % PATCHES if SPLIT > 1 else lane, G, Z, UNITS, PATCHES, WIDTH, SPANS, GAP, ROWS, COLS, VECTOR,
        WIDE,
    )  # fmt: skip
    d = plane * STRIDE_D - FRONT
    h = p * STRIDE_H - TOP
    v = q * STRIDE_W  # the padding is part of the pieces, which begin at multiples of the load's width
    at = n * X_N + g * (C * X_C) + h * X_H + v * X_W
    if Z > 1 or FRONT != 0:
        at += d * X_D
    if TURNS is not None:
        OUTSIDE: tl.constexpr = (
            TURNS[0] * APART * DILATION_H < TOP
            or LAST_P * STRIDE_H - TOP + (TURNS[1] * APART - 1) * DILATION_H >= H
        )
        write_strips(
            x + at, z + at if DERIVATIVE != "none" else x, w + (g * W_G + W_FIRST), y, bias, residual, there, n, g,
            plane, h, v, p, q, RAGGED, OUTSIDE, (WIDTH - 1) * COLS * STRIDE_W, H, W, Z, P, Q, R, S, X_C, X_H, X_W,
            W_G, W_R, W_S, Y_N, Y_K, Y_Z, Y_P, Y_Q, DILATION_H, FLIP, BIAS, RESIDUAL, ACTIVATION, DERIVATIVE, GAP,
            APART, ROWS, COLS, PIECES, PLACES, VECTOR, PATCHES, TURNS[0], TURNS[1],
        )  # fmt: skip
    elif KEPT > 0:
        write_channels(
            x + at, z + at if DERIVATIVE != "none" else x, w + (g * W_G + W_FIRST), y, bias, residual, there, n, g,
            k_first, h, v, p, q, RAGGED, LAST_P * STRIDE_H - TOP, (WIDTH - 1) * COLS * STRIDE_W, C, H, W, K, P, Q, R, S,
            X_C, X_H, X_W, W_K, W_C, W_R, W_S, Y_N, Y_K, Y_P, Y_Q, TOP, DILATION_H, FLIP, BIAS, RESIDUAL, ACTIVATION,
            DERIVATIVE, GAP, APART, ROWS, COLS, OUTPUTS, WRITTEN, PIECES, PLACES, KEPT, PATCHES,
        )  # fmt: skip
    else:
        sums = summed_up(
            x + at, z + at if DERIVATIVE != "none" else x, w + (g * W_G + W_FIRST), k_first, group, d, h, v, there,
            RAGGED, LAST_P * STRIDE_H - TOP, (WIDTH - 1) * COLS * STRIDE_W, Z,
            C, D, H, W, K, T, R, S, X_C, X_D, X_H, X_W, W_G, W_K, W_C, W_T, W_R, W_S, STRIDE_D, FRONT, TOP,
            DILATION_D, DILATION_H, FLIP, DERIVATIVE, APART, ROWS, COLS, OUTPUTS, PIECES, PLACES, BY_ROW,
            SPLIT, VECTOR, SPLIT * PATCHES,
        )  # fmt: skip
        if SPLIT > 1:
            there, n, g, plane, p, q = _place(
                program, tl.arange(0, PATCHES), G, Z, UNITS, PATCHES, WIDTH, SPANS, GAP, ROWS, COLS, VECTOR, WIDE
            )
        for row in tl.static_range(ROWS):
            h = p + row * GAP
            write_row(
                y, bias, residual, sums, there & (h < P) if P % (ROWS * GAP) else there, n, g, k_first, plane, h, q, K,
                Z, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, BIAS, RESIDUAL, ACTIVATION, row * OUTPUTS * COLS * GROUPS, COLS, WRITTEN,
                OUTPUTS, SPLIT, VECTOR,
            )  # fmt: skip
