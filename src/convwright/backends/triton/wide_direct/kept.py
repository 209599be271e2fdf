"""What a thread computes where it keeps all that its patch reads of few input channels: output channels are a loop.

Each turn computes some output channels of the patch. Memory is waited for once, and not for each input channel, and a
pixel is read once, and not for each few output channels.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.wide_direct.patch import added
from convwright.backends.triton.wide_direct.rows import row_inside, weights_read, write_row


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
    """Sum up and write the patch of an image, which has one plane and one tap there, in TURNS times OUTPUTS channels,
    of which ``k_first`` is the first."""
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
