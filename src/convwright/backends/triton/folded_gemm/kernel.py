"""The kernel that lays an image of few channels, and its weight, for products on folded rows of taps.

Three channels fill no step of a matrix product. Filled up to four, those of neighbouring pixels lie side by side, and
all that seven taps of a row read is one step of 28 of 32 numbers.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.staging.fp16_parts import lowering, magnitude, raising, shared_exponent
from convwright.backends.triton.staging.kernel import scales_behind, store_raised


# fmt: off
@triton.jit
def folded_operands(
    x, staged, w, packed,
    C: tl.constexpr, N: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, WIDE: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    PITCH: tl.constexpr, STEP: tl.constexpr, EACH: tl.constexpr, SCALED: tl.constexpr, SCALES_AT: tl.constexpr,
    X_BLOCK: tl.constexpr, W_BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """staged = x as N DP HP WP PITCH, all high parts ahead of all low ones where EACH number becomes two, and packed =
    w as K ROWS EACH STEP, a step of it S PITCH and zeros. Behind both, of SCALED numbers, lies the power of two of each
    row and of each output channel: a program lays one of them. FLIP mirrors the taps."""
    wait_for_the_kernel_ahead(OVERLAPS)
    program = tl.program_id(0)
    if program < N * DP * HP:
        _lay_row(
            program, x, staged, C, N, D, H, W, X_N, X_C, X_D, X_H, X_W, WIDE, DP, HP, WP, FRONT, TOP, LEFT, PITCH,
            EACH, SCALED, SCALES_AT, X_BLOCK,
        )  # fmt: skip
    else:
        _lay_weight(
            program - N * DP * HP, w, packed, K, C, R, S, ROWS, W_K, W_C, W_T, W_R, W_S, FLIP, PITCH, STEP, EACH,
            SCALED, W_BLOCK,
        )  # fmt: skip


# fmt: off
@triton.jit
def _lay_row(
    row, x, staged, C: tl.constexpr, N: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, WIDE: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    PITCH: tl.constexpr, EACH: tl.constexpr, SCALED: tl.constexpr, SCALES_AT: tl.constexpr, BLOCK: tl.constexpr,
):
    # fmt: on
    """One row of the input, and its power of two."""
    ROW: tl.constexpr = WP * PITCH
    at = tl.arange(0, BLOCK)
    c = at % PITCH
    n = row // (DP * HP)
    d = row // HP % DP - FRONT
    h = row % HP - TOP
    v = at // PITCH - LEFT
    inside = (d >= 0) & (d < D) & (h >= 0) & (h < H)
    there = inside & (at < ROW) & (c < C) & (v >= 0) & (v < W)
    if WIDE:
        n = n.to(tl.int64)
    value = tl.load(x + (n * X_N + d * X_D + h * X_H) + (v * X_W + c * X_C), mask=there, other=0.0)
    to = staged + row * ROW + at
    if SCALED:
        exponent = shared_exponent(magnitude(value)[None, :], 1)
        store_raised(to, value * raising(exponent), at < ROW, N * DP * HP * ROW, EACH)
        tl.store(scales_behind(staged, SCALES_AT) + row + tl.arange(0, 1), lowering(exponent))
    else:
        tl.store(to, value, mask=at < ROW)


# fmt: off
@triton.jit
def _lay_weight(
    k, w, packed, K: tl.constexpr, C: tl.constexpr, R: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    PITCH: tl.constexpr, STEP: tl.constexpr, EACH: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr,
):
    # fmt: on
    """The weight of output channel ``k``, and its power of two."""
    LENGTH: tl.constexpr = ROWS * STEP
    at = tl.arange(0, BLOCK)
    row = at // STEP
    s = at % STEP // PITCH
    c = at % PITCH
    there = (row < ROWS) & (s < S) & (c < C)
    if FLIP:
        row = ROWS - 1 - row
        s = S - 1 - s
    offset = row // R * W_T + row % R * W_R + s * W_S + c * W_C
    value = tl.load(w + k.to(tl.int64) * W_K + offset, mask=there, other=0.0)
    to = packed + k * (EACH * LENGTH) + at // STEP * (EACH * STEP) + at % STEP
    if SCALED:
        exponent = shared_exponent(magnitude(value)[None, :], 1)
        store_raised(to, value * raising(exponent), at < LENGTH, STEP, EACH)
        tl.store(scales_behind(packed, K * LENGTH * EACH // 2) + k + tl.arange(0, 1), lowering(exponent))
    else:
        tl.store(to, value, mask=at < LENGTH)
