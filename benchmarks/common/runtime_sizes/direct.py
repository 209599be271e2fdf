"""The kernel of `backends/triton/direct`, of forward convolutions alone, with its sizes and strides as numbers at run
time.

Flags hold what the sizes decide at compile time: DEEP, PADDED_D, K_FITS, K_DIVIDED, RAGGED,
UNITS_FIT, ONE_SPAN and ONE_COLUMN.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from common.runtime_sizes.dividing import divided

from convwright.backends.triton.activation import activated
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.loading import loaded


@triton.jit
def _tap(w, r, s, W_R, W_S, R: tl.constexpr, S: tl.constexpr, FLIP: tl.constexpr):
    return w + ((R - 1 - r if FLIP else r) * W_R + (S - 1 - s if FLIP else s) * W_S)


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
def _with_column(
    sums, at, w, k_first, there, h, v, s, H, W, K, X_H, X_W, W_K, W_R, W_S, R: tl.constexpr, S: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, RAGGED: tl.constexpr,
    OUTPUTS: tl.constexpr, K_FITS: tl.constexpr,
):
    # fmt: on
    """The sums with one column of taps of one more input channel, or of one plane of it."""
    taps = ()
    for r in tl.static_range(R):
        tap = _tap(w, r, s, W_R, W_S, R, S, FLIP)
        for out in tl.static_range(OUTPUTS):
            k = k_first + out if K_FITS else tl.minimum(k_first + out, K - 1)
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
        sums = _added(sums, value, taps, OUTPUTS, R, APART, ROWS, row)
    return sums


# fmt: off
@triton.jit
def _over_channels(
    sums, at, w, k_first, group, d, h, v, C, D, H, W, K, X_C, X_D, X_H, X_W, W_K, W_C, W_T, W_R, W_S,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, MASKED: tl.constexpr, PADDED_D: tl.constexpr,
    LARGE: tl.constexpr, OUTPUTS: tl.constexpr, RAGGED: tl.constexpr, K_FITS: tl.constexpr,
):
    # fmt: on
    """The sums with all input channels."""
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
                    sums, at + plane, w_plane, k_first, there, h, v, s, H, W, K, X_H, X_W, W_K, W_R, W_S, R, S,
                    DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, RAGGED, OUTPUTS, K_FITS,
                )  # fmt: skip
        else:
            for s in tl.static_range(S):
                sums = _with_column(
                    sums, at + plane, w_plane, k_first, there, h, v, s, H, W, K, X_H, X_W, W_K, W_R, W_S, R, S,
                    DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, RAGGED, OUTPUTS, K_FITS,
                )  # fmt: skip
    return sums


# fmt: off
@triton.jit
def _place(
    unit, g, G, Q, G_TIMES, G_SHIFT, Q_TIMES, Q_SHIFT, ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr,
    RUN: tl.constexpr,
):
    # fmt: on
    """The group and the column of each lane, whose place among all of a row is ``unit``."""
    q = unit
    if ACROSS:
        if CHANNELS_LAST:
            q, g = divided(unit, G, G_TIMES, G_SHIFT, RUN)
        else:
            g, q = divided(unit, Q, Q_TIMES, Q_SHIFT, RUN)
            g = tl.minimum(g, G - 1)
    return g, q


@triton.jit
def _total(sums, SPLIT: tl.constexpr, BQ: tl.constexpr):
    return tl.sum(tl.reshape(sums, (SPLIT, BQ)), axis=0) if SPLIT > 1 else sums


# fmt: off
@triton.jit
def direct(
    x, w, bias, residual, y,
    G, C, K, D, H, W, Z, P, Q, X_N, X_C, X_D, X_H, X_W, W_G, W_K, W_C, W_T, W_R, W_S, Y_N, Y_K, Y_Z, Y_P, Y_Q,
    G_TIMES, G_SHIFT, Q_TIMES, Q_SHIFT, Z_TIMES, Z_SHIFT, SPANS_TIMES, SPANS_SHIFT, COLUMNS_TIMES, COLUMNS_SHIFT,
    BLOCKS_TIMES, BLOCKS_SHIFT,
    R: tl.constexpr, S: tl.constexpr, T: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr, FRONT: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, WIDE: tl.constexpr,
    GAP: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, BQ: tl.constexpr, SPLIT: tl.constexpr,
    ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr, LARGE: tl.constexpr, OUTPUTS: tl.constexpr,
    OVERLAPS: tl.constexpr,
    DEEP: tl.constexpr, PADDED_D: tl.constexpr, K_FITS: tl.constexpr, K_DIVIDED: tl.constexpr, RAGGED: tl.constexpr,
    UNITS_FIT: tl.constexpr, ONE_SPAN: tl.constexpr, ONE_COLUMN: tl.constexpr, RUN: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), in G groups with C input and K output channels each.

    *_TIMES and *_SHIFT are reciprocals, or None; RUN divides that along which lanes run."""
    wait_for_the_kernel_ahead(OVERLAPS)
    spans = 1 if ONE_SPAN else (P + ROWS * GAP - 1) // (ROWS * GAP)
    units = Q * G if ACROSS else Q
    columns = 1 if ONE_COLUMN else (units + BQ - 1) // BQ

    # Programs for other channels, which read the same pixels, lie side by side.
    program = tl.program_id(0)
    k_first = 0
    if K_DIVIDED:
        k_blocks = (K + OUTPUTS - 1) // OUTPUTS
        program, k_block = divided(program, k_blocks, BLOCKS_TIMES, BLOCKS_SHIFT, 1)
        k_first = k_block * OUTPUTS
    span, column = divided(program, columns, COLUMNS_TIMES, COLUMNS_SHIFT, 1)
    first = column * BQ
    image, block = divided(span // GAP, spans, SPANS_TIMES, SPANS_SHIFT, 1)
    p = block * (ROWS * GAP) + span % GAP
    plane = 0
    if DEEP:
        image, plane = divided(image, Z, Z_TIMES, Z_SHIFT, 1)
    n = image
    own = 0
    if not ACROSS:
        n, own = divided(image, G, G_TIMES, G_SHIFT, 1)
    if WIDE:
        n = n.to(tl.int64)
    lane = tl.arange(0, SPLIT * BQ)
    group = lane // BQ if SPLIT > 1 else 0
    g, q = _place(
        first + lane % BQ, own, G, Q, G_TIMES, G_SHIFT, Q_TIMES, Q_SHIFT, ACROSS, CHANNELS_LAST, RUN
    )  # fmt: skip
    w += g * W_G
    _, first_q = _place(
        first, 0, G, Q, G_TIMES, G_SHIFT, Q_TIMES, Q_SHIFT, ACROSS, CHANNELS_LAST, 1
    )  # fmt: skip
    _, last_q = _place(
        first + BQ - 1, 0, G, Q, G_TIMES, G_SHIFT, Q_TIMES, Q_SHIFT, ACROSS, CHANNELS_LAST, 1
    )  # fmt: skip
    if ACROSS and not CHANNELS_LAST:
        first_q, last_q = 0, Q - 1

    sums = ()
    for _ in tl.static_range(ROWS * OUTPUTS):
        sums += (tl.zeros((SPLIT * BQ,), tl.float32),)
    d = plane * STRIDE_D - FRONT
    h = p * STRIDE_H - TOP
    v = q * STRIDE_W - LEFT
    at = (n * X_N + h * X_H) + (g * (C * X_C) + v * X_W)
    if DEEP or FRONT != 0:
        at += d * X_D
    first_v = first_q * STRIDE_W - LEFT
    last_v = last_q * STRIDE_W - LEFT + (S - 1) * DILATION_W
    inside = (h >= 0) & (h + ((ROWS - 1) * APART + R - 1) * DILATION_H < H) & (first_v >= 0) & (last_v < W)
    if PADDED_D:
        inside = inside & (d >= 0) & (d + (T - 1) * DILATION_D < D)
    if inside:
        sums = _over_channels(
            sums, x + at, w, k_first, group, d, h, v, C, D, H, W, K, X_C, X_D, X_H, X_W, W_K, W_C, W_T, W_R, W_S,
            T, R, S, DILATION_D, DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, False, PADDED_D, LARGE, OUTPUTS,
            RAGGED, K_FITS,
        )  # fmt: skip
    else:
        sums = _over_channels(
            sums, x + at, w, k_first, group, d, h, v, C, D, H, W, K, X_C, X_D, X_H, X_W, W_K, W_C, W_T, W_R, W_S,
            T, R, S, DILATION_D, DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, True, PADDED_D, LARGE, OUTPUTS,
            RAGGED, K_FITS,
        )  # fmt: skip

    unit = first + tl.arange(0, BQ)
    g, column = _place(
        unit, own, G, Q, G_TIMES, G_SHIFT, Q_TIMES, Q_SHIFT, ACROSS, CHANNELS_LAST, RUN
    )  # fmt: skip
    for row in tl.static_range(ROWS):
        h = p + row * GAP
        for place in tl.static_range(OUTPUTS):
            k = k_first + place
            kept = h < P
            if not UNITS_FIT:
                kept = kept & (unit < units)
            if not K_FITS:
                kept = kept & (k < K)
            total = _total(sums[row * OUTPUTS + place], SPLIT, BQ)
            to = n * Y_N + (g * K + k) * Y_K + h * Y_P + column * Y_Q
            if DEEP:
                to += plane * Y_Z
            if RESIDUAL:
                total += tl.load(residual + to, mask=kept, other=0.0).to(tl.float32)
            if BIAS:
                total += tl.load(bias + (g * K + (k if K_FITS else tl.minimum(k, K - 1)))).to(tl.float32)
            tl.store(y + to, activated(total, ACTIVATION, y.dtype.element_ty).to(y.dtype.element_ty), mask=kept)
