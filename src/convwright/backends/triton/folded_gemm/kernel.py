"""The kernel that stages an image of few channels, and packs its weight, for products on folded rows of taps.

Three channels do not fill a step of a matrix product. Padded to four, the channels of neighbouring pixels are
contiguous, and the seven taps of a row read 28 of the 32 numbers of one step.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import any_of
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.staged_gemm.kernel import sum_over_taps, write_sums
from convwright.backends.triton.staging.kernel import (
    dot_3xfp16,
    exponent_of,
    lowering,
    magnitude,
    raising,
    scales_after,
    shared_exponent,
    store_raised,
    times_power,
)


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
    """staged = x as N DP HP WP PITCH, all high parts before all low parts if EACH number becomes two, and packed = w as
    K ROWS EACH STEP, a step of which is S PITCH and zeros. With SCALED numbers, the powers of two of all rows and of
    all output channels follow. A program writes one row or one output channel. FLIP mirrors the taps."""
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
        tl.store(scales_after(staged, SCALES_AT) + row + tl.arange(0, 1), lowering(exponent))
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
        tl.store(scales_after(packed, K * LENGTH * EACH // 2) + k + tl.arange(0, 1), lowering(exponent))
    else:
        tl.store(to, value, mask=at < LENGTH)


# The kernel of products on folded rows of taps whose weight stays in shared memory. A first layer's weight is small,
# and each of thousands of tiles reads it. Here a program keeps it and computes one tile after another. It loads all
# rows of a tile at once: through the L1 cache, or in several stages by asynchronous copies, which bypass L1, while
# earlier tiles are multiplied.

# fmt: off
@triton.jit
def held_gemm(
    staged, w, bias, residual, y,
    N: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr, PITCH: tl.constexpr, SCALES_AT: tl.constexpr,
    X_LOW: tl.constexpr, FOLDED: tl.constexpr, WHOLE: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    Y_PLANES: tl.constexpr, WIDE: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    EACH: tl.constexpr, SCALED: tl.constexpr, EXACT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), where x is ``staged`` and w packed, with EACH numbers per element,
    and the taps of a row FOLDED into one step of BK.

    Low parts are X_LOW elements after high ones; SCALED numbers have been multiplied by a power of two per row. A WHOLE
    step also reads the numbers after the taps, which are multiplied by weights of 0. Y_* are strides; Y_PLANES: y is
    NCHW; WIDE selects 64-bit offsets. Each of the PROGRAMS has one block of BN channels.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    M: tl.constexpr = N * Z * P * Q
    ROWS: tl.constexpr = T * R
    LENGTH: tl.constexpr = ROWS * EACH * BK
    TILES_M: tl.constexpr = (M + BM - 1) // BM
    TILES_N: tl.constexpr = (K + BN - 1) // BN
    MASKED: tl.constexpr = not WHOLE and FOLDED < BK

    within = tl.arange(0, BK)
    k = tl.program_id(0) % TILES_N * BN + tl.arange(0, BN)
    k_read = tl.minimum(k, K - 1) if K % BN else k
    w_columns = w + k_read * LENGTH
    w_high = ()
    w_low = ()
    for row in tl.static_range(ROWS):
        w_at = w_columns[None, :] + (row * (EACH * BK) + within)[:, None]
        w_high += (tl.load(w_at),)
        if EACH == 2:
            w_low += (tl.load(w_at + BK),)
    # As in products of any staged input, sums have the scale of the column with the smallest factor, unless others are
    # scaled by 2^40 more.
    common = 1.0
    if SCALED:
        exponents = exponent_of(tl.load(scales_after(w, K * LENGTH // 2) + k_read))
        shared = tl.maximum(tl.minimum(tl.max(exponents, axis=0), tl.min(exponents, axis=0) + 40), 104)
        common = (shared << 23).to(tl.float32, bitcast=True)

    for tile in tl.range(tl.program_id(0) // TILES_N, TILES_M, PROGRAMS // TILES_N, num_stages=STAGES):
        m = tile * BM + tl.arange(0, BM)
        m_read = tl.minimum(m, M - 1)
        of_row = (m_read // (Z * P * Q) * DP + m_read // (P * Q) % Z * STRIDE_D) * HP + m_read // Q % P * STRIDE_H
        x_rows = staged + (of_row * WP + m_read % Q * STRIDE_W) * PITCH
        scale_rows = scales_after(staged, SCALES_AT) + of_row
        scales = ()
        if SCALED:
            for row in tl.static_range(ROWS):
                moved = row // R * (DILATION_D * HP) + row % R * DILATION_H
                scales += (tl.load(scale_rows + moved),)
        x_high = ()
        x_low = ()
        for row in tl.static_range(ROWS):
            moved = row // R * (DILATION_D * HP) + row % R * DILATION_H
            x_at = x_rows[:, None] + (moved * (WP * PITCH) + within)[None, :]
            high = tl.load(x_at, mask=(within < FOLDED)[None, :], other=0.0) if MASKED else tl.load(x_at)
            x_high += (high,)
            if EACH == 2:
                x_low_at = x_at + X_LOW
                low = tl.load(x_low_at, mask=(within < FOLDED)[None, :], other=0.0) if MASKED else tl.load(x_low_at)
                x_low += (low,)
        total = tl.zeros((BM, BN), tl.float32)
        for row in tl.static_range(ROWS):
            if EACH == 2:
                product = dot_3xfp16(x_high[row], x_low[row], w_high[row], w_low[row], EXACT)
            elif SCALED:
                product = tl.dot(x_high[row], w_high[row])
            if SCALED:
                total += product * tl.minimum(scales[row] * common, 1.7014118346046923e38)[:, None]
            else:
                total = tl.dot(x_high[row], w_high[row], total)
        if WHOLE:
            # A weight of 0 times an infinity is NaN. Such tiles are rare and are computed again without these numbers.
            lost = total != total
            if any_of(lost):
                total = sum_over_taps(
                    x_rows, scale_rows, w_columns, common, 0,
                    N * DP * HP * WP, HP, WP, PITCH, PITCH, X_LOW, FOLDED, True, T, R, 1,
                    DILATION_D, DILATION_H, 1, EACH, SCALED, EXACT, BM, BN, BK, 1,
                )  # fmt: skip
        if SCALED:
            total = times_power(total, (exponents - shared)[None, :])
        write_sums(
            total, m, tl.program_id(0) % TILES_N * BN, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q,
            Y_PLANES, BIAS, RESIDUAL, ACTIVATION, WIDE, BN,
        )  # fmt: skip
