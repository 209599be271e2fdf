"""What a thread sums up where all products of its patch with a plane of taps, or a row of them, are written out."""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.wide_direct.rows import row_inside, weights_read


# fmt: off
@triton.jit
def added(
    sums, columns, taps, PLACES: tl.constexpr, READ: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr, GROUPS: tl.constexpr,
):
    # fmt: on
    """The sums, (row, k, column, group), with what was read of row READ, (column, group); ``taps`` is what they weigh,
    (r, s, k, group)."""
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
    """The patch's sums in fp32 over every SPLIT-th input channel, of which ``group`` is the first. (d, h, v) is where
    the patch's first tap reads without padding, and ``x`` that place in the first channel."""
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
