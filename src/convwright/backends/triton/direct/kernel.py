"""The kernel: a forward convolution with few channels, each of whose elements one thread sums up by itself.

No matrix is multiplied, so nothing is wasted on a tile's idle columns; what is read is read once from memory, and
again from the cache for other taps. A thread computes several rows of the output that lie one dilation apart, of some
channels: what the last tap reads for one of them, the tap before reads for the next. Where an image has too few
elements to keep a GPU busy, the input channels are split among the warps of a block, whose sums are added up at the
end. Of a volume a thread's rows lie in one plane, and the planes that taps read for it are summed up one after another,
as channels are. The gradient of an input is such a convolution of dy, which may be multiplied, where it is read, by an
activation's derivative; with strides it is one for each phase of the input's pixels, and a thread computes all of them.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated
from convwright.backends.triton.direct.rows import sums_of_rows
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


@triton.jit
def _place(unit, g, G: tl.constexpr, Q: tl.constexpr, ACROSS: tl.constexpr, CHANNELS_LAST: tl.constexpr):
    """The group and the column of each lane, whose place among all of a row is ``unit``. Behind the last one comes a
    column that is not there, or the last group again."""
    q = unit
    if ACROSS:
        g = unit % G if CHANNELS_LAST else tl.minimum(unit // Q, G - 1)
        q = unit // G if CHANNELS_LAST else unit % Q
    return g, q


@triton.jit
def _total(sums, SPLIT: tl.constexpr, BQ: tl.constexpr):
    """Those of the groups of lanes added up."""
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
    """The results of phases B of the rows and E, with TOGETHER the next one too, of the columns."""
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
    DERIVATIVE x is multiplied by that of this activation at z, which lies as x does, and is None without.

    X_*, W_* and Y_* are strides; WIDE makes offsets 64 bits wide. Each dimension's PHASES take turns along y, each with
    its number of taps, how far ahead of a window's place the first one reads, and where the first one lies in the
    weight; a convolution has one. A program computes of each phase OUTPUTS channels of each group, BQ columns of ROWS
    rows that are GAP apart; what is read for each lies APART dilations behind what is read for the one before. Each of
    SPLIT groups of lanes sums up as many of the input channels. ACROSS groups lanes run, through the columns of one
    after those of another, or, with CHANNELS_LAST, through all groups of one column after another. The columns of taps
    of a LARGE filter are a loop. TOGETHER phases of columns are written as one.
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
