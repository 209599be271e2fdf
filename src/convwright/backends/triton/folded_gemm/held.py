"""The kernel of products on folded rows of taps whose weight stays in shared memory.

A first layer's weight is small, and each of thousands of tiles reads it. Here a program keeps it, and takes one tile
after another, all rows of which it reads at once: through the nearest cache, or in several stages by copies that pass
this by while tiles before are multiplied.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import any_of
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.staged_gemm.kernel import sum_over_taps, write_sums
from convwright.backends.triton.staging.fp16_parts import dot_3xfp16, exponent_of, times_power
from convwright.backends.triton.staging.kernel import scales_behind


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
    """y = activation(conv(x, w) + residual + bias), where x is ``staged`` and w packed, EACH number as so many, with
    the taps of a row FOLDED into one step of BK.

    Low parts lie X_LOW behind high ones; SCALED numbers have been raised by a power of two that a row shares. Of a
    WHOLE step what lies behind the taps is read too, beside weights of 0. Y_* are strides, Y_PLANES says that y lies in
    planes; WIDE makes its offsets 64 bits wide. Each of the PROGRAMS has one block of BN channels.
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
    # As in products of any staged input, sums are those of the column that is raised least, unless others are raised by
    # 2^40 more.
    common = 1.0
    if SCALED:
        exponents = exponent_of(tl.load(scales_behind(w, K * LENGTH // 2) + k_read))
        shared = tl.maximum(tl.minimum(tl.max(exponents, axis=0), tl.min(exponents, axis=0) + 40), 104)
        common = (shared << 23).to(tl.float32, bitcast=True)

    for tile in tl.range(tl.program_id(0) // TILES_N, TILES_M, PROGRAMS // TILES_N, num_stages=STAGES):
        m = tile * BM + tl.arange(0, BM)
        m_read = tl.minimum(m, M - 1)
        of_row = (m_read // (Z * P * Q) * DP + m_read // (P * Q) % Z * STRIDE_D) * HP + m_read // Q % P * STRIDE_H
        x_rows = staged + (of_row * WP + m_read % Q * STRIDE_W) * PITCH
        scale_rows = scales_behind(staged, SCALES_AT) + of_row
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
            # A weight of 0 beside an infinity makes NaN, in the rare tile that is computed again without such numbers.
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
