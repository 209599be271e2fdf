"""The kernels: a forward convolution of fp32 numbers by fp16 products, on an input that is staged first.

Tensor cores multiply fp16 twice as fast as TF32, and read half as many bytes. So each number becomes two fp16 numbers,
or one if TF32 is allowed. This is done once, where the product kernels would repeat it for every tap and tile. A staged
input is N D H W C, with alternating blocks of high and low parts, and with zeros outside the image and after the last
channel of a group, so the products need no bounds checks. The powers of two by which a block of channels of one pixel
was multiplied follow. The weight is K T R S C in the same form, with one power of two per output channel.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import any_of
from convwright.backends.triton.implicit_gemm.kernel import write_tile
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.staging.kernel import (
    block_of_pixels,
    dot_3xfp16,
    exponent_of,
    lowering,
    magnitude,
    raising,
    scales_after,
    shared_exponent,
    store_raised,
    tile_and_block,
    times_power,
)


# fmt: off
@triton.jit
def staged_input(
    x, staged,
    N: tl.constexpr, C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    X_PLANES: tl.constexpr, WIDE: tl.constexpr, DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    PITCH: tl.constexpr, SCALES_AT: tl.constexpr, EACH: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """staged = x, with EACH numbers per element, as N DP HP WP G PITCH/BC EACH BC; after it, in fp32, the powers of
    two, as G PITCH/BC N DP HP WP.

    A program stages BC channels of BP pixels.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    PIXELS: tl.constexpr = N * DP * HP * WP
    TILES: tl.constexpr = (PIXELS + BP - 1) // BP
    tile, block = tile_and_block(tl.program_id(0), TILES, G * PITCH // BC, X_PLANES)
    pixel = tile * BP + tl.arange(0, BP)
    value = block_of_pixels(
        x, pixel, block, C, N, D, H, W, X_N, X_C, X_D, X_H, X_W, DP, HP, WP, FRONT, TOP, LEFT, X_PLANES, WIDE, BC
    )
    exponent = shared_exponent(magnitude(value), 1)
    at = staged + (pixel * (EACH * G * PITCH))[:, None] + (block * (EACH * BC) + tl.arange(0, BC))[None, :]
    kept = pixel < PIXELS
    store_raised(at, value * raising(exponent)[:, None], kept[:, None], BC, EACH)
    tl.store(scales_after(staged, SCALES_AT) + block * PIXELS + pixel, lowering(exponent), mask=kept)


# fmt: off
@triton.jit
def _weights(
    of_row, at, C: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    PITCH: tl.constexpr,
):
    # fmt: on
    """The weights at these positions of a row, T R S PITCH."""
    TAPS: tl.constexpr = T * R * S
    tap = at // PITCH
    c = at % PITCH
    there = (tap < TAPS) & (c < C)
    if FLIP:
        tap = TAPS - 1 - tap
    offset = tap // (R * S) * W_T + tap // S % R * W_R + tap % S * W_S + c * W_C
    return tl.load(of_row + offset, mask=there, other=0.0)


# fmt: off
@triton.jit
def packed_weight(
    w, packed, ROWS: tl.constexpr, C: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    FLIP: tl.constexpr, PITCH: tl.constexpr, EACH: tl.constexpr, BC: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """packed = w, with EACH numbers per element, as ROWS T R S PITCH/BC EACH BC, and after it the power of two of each
    row. A program packs one row, BLOCK weights at a time; FLIP mirrors the taps."""
    wait_for_the_kernel_ahead(OVERLAPS)
    LENGTH: tl.constexpr = T * R * S * PITCH
    row = tl.program_id(0).to(tl.int64)
    of_row = w + row * W_K
    exponent = tl.full((1,), 0, tl.int32)
    for first in tl.range(0, LENGTH, BLOCK):
        value = _weights(of_row, first + tl.arange(0, BLOCK), C, T, R, S, W_C, W_T, W_R, W_S, FLIP, PITCH)
        exponent = tl.maximum(exponent, shared_exponent(magnitude(value)[None, :], 1))
    for first in tl.range(0, LENGTH, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = _weights(of_row, at, C, T, R, S, W_C, W_T, W_R, W_S, FLIP, PITCH)
        to = packed + row * (EACH * LENGTH) + at // BC * (EACH * BC) + at % BC
        store_raised(to, value * raising(exponent), at < LENGTH, BC, EACH)
    tl.store(scales_after(packed, ROWS * LENGTH * EACH // 2) + row + tl.arange(0, 1), lowering(exponent))


# fmt: off
@triton.jit
def sum_over_taps(
    x_rows, scale_rows, w_columns, common, part,
    PIXELS: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr, PITCH: tl.constexpr,
    X_PIXEL: tl.constexpr, X_LOW: tl.constexpr, FOLDED: tl.constexpr, MASKED: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    EACH: tl.constexpr, SCALED: tl.constexpr, EXACT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
):
    # fmt: on
    """One tile of the matrix product, or one part of it, in fp32, times ``common``. A MASKED step reads only the
    numbers that are FOLDED into it."""
    BLOCKS: tl.constexpr = 1 if FOLDED else PITCH // BK
    STEPS: tl.constexpr = T * R * S * BLOCKS
    STEPS_EACH: tl.constexpr = (STEPS + PARTS - 1) // PARTS
    within = tl.arange(0, BK)

    total = tl.zeros((BM, BN), tl.float32)
    for turn in tl.range(STEPS if PARTS == 1 else min(STEPS_EACH, STEPS - part * STEPS_EACH)):
        step = part * STEPS_EACH + turn
        tap = step // BLOCKS
        block = step % BLOCKS
        moved = (tap // S % R if T > 1 else tap // S) * (DILATION_H * WP) + tap % S * DILATION_W
        if T > 1:
            moved += tap // (R * S) * (DILATION_D * HP * WP)
        x_at = x_rows[:, None] + (moved * X_PIXEL + block * (EACH * BK) + within)[None, :]
        w_at = w_columns[None, :] + (step * (EACH * BK) + within)[:, None]
        x_high = tl.load(x_at, mask=(within < FOLDED)[None, :], other=0.0) if MASKED else tl.load(x_at)
        w_high = tl.load(w_at)
        if EACH == 2:
            x_low_at = x_at + X_LOW
            x_low = tl.load(x_low_at, mask=(within < FOLDED)[None, :], other=0.0) if MASKED else tl.load(x_low_at)
            product = dot_3xfp16(x_high, x_low, w_high, tl.load(w_at + BK), EXACT)
        elif SCALED:
            product = tl.dot(x_high, w_high)
        # Each step has its own scale. Tensor cores also truncate what they add to a running sum; fp32 additions round.
        if SCALED:
            scale_at = scale_rows + (moved // WP if FOLDED else block * PIXELS + moved)
            # A sum of zeros stays 0 even if the product of both powers of two is infinite.
            scale = tl.minimum(tl.load(scale_at) * common, 1.7014118346046923e38)
            total += product * scale[:, None]
        else:
            total = tl.dot(x_high, w_high, total)
    return total


# fmt: off
@triton.jit
def write_sums(
    total, m, first, bias, residual, y,
    N: tl.constexpr, K: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    Y_PLANES: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, WIDE: tl.constexpr, BN: tl.constexpr,
):
    # fmt: on
    """y = activation(total + residual + bias) at the pixels ``m`` and BN channels from ``first`` on."""
    if Y_PLANES and P * Q % 4 != 0 and BN > 16:
        # Without vector stores: the addresses of a whole tile would spill.
        HALF: tl.constexpr = BN // 2
        left, right = tl.split(tl.permute(tl.reshape(total, (total.shape[0], 2, HALF)), (0, 2, 1)))
        k_left = first + tl.arange(0, HALF)
        write_tile(
            left, m, k_left, bias, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, Y_PLANES,
            False, BIAS, RESIDUAL, ACTIVATION, WIDE,
        )  # fmt: skip
        write_tile(
            right, m, k_left + HALF, bias, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, Y_PLANES,
            False, BIAS, RESIDUAL, ACTIVATION, WIDE,
        )  # fmt: skip
    else:
        write_tile(
            total, m, first + tl.arange(0, BN), bias, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q,
            Y_PLANES, False, BIAS, RESIDUAL, ACTIVATION, WIDE,
        )  # fmt: skip


# fmt: off
@triton.jit
def staged_gemm(
    staged, w, bias, residual, y,
    N: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, G: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr, PITCH: tl.constexpr, SCALES_AT: tl.constexpr,
    X_PIXEL: tl.constexpr, X_LOW: tl.constexpr, FOLDED: tl.constexpr, WHOLE: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    Y_PLANES: tl.constexpr, WIDE: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    EACH: tl.constexpr, SCALED: tl.constexpr, EXACT: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, PARTS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), in G groups with K output channels each, where x is ``staged`` and
    w packed, with EACH numbers per element. With several PARTS, y has their sums as PARTS N Z P Q K.

    A staged pixel has X_PIXEL numbers, and low parts are X_LOW elements after high ones; SCALED numbers have been
    multiplied by a power of two. If the taps of a row are FOLDED into so many channels, pixels overlap, S is 1, and a
    row of pixels shares a scale; a WHOLE step also reads the numbers after the taps, which are multiplied by weights of
    0. Y_* are strides; Y_PLANES: y is NCHW; WIDE selects 64-bit offsets.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    M: tl.constexpr = N * Z * P * Q
    PIXELS: tl.constexpr = N * DP * HP * WP
    ROW: tl.constexpr = T * R * S * (BK if FOLDED else PITCH)
    TILES_M: tl.constexpr = (M + BM - 1) // BM
    TILES_K: tl.constexpr = (K + BN - 1) // BN
    TILES_N: tl.constexpr = G * TILES_K

    # Neighbouring programs share GROUP_M row tiles, whose input stays in the cache.
    program = tl.program_id(0)
    part = 0
    if PARTS > 1:
        part = program // (TILES_M * TILES_N)
        program = program % (TILES_M * TILES_N)
        y += part * (M * G * K)
    group = program // (GROUP_M * TILES_N)
    within = program % (GROUP_M * TILES_N)
    rows = min(TILES_M - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % rows) * BM + tl.arange(0, BM)
    tile_n = within // rows
    x_scales = scales_after(staged, SCALES_AT)
    k_scales = scales_after(w, G * K * ROW * EACH // 2)
    if G > 1:
        g = tile_n // TILES_K
        tile_n = tile_n % TILES_K
        staged += g * (EACH * PITCH)
        x_scales += g * (PITCH // BK * PIXELS)
        w += g * (EACH * K * ROW)
        k_scales += g * K
        y += g * (K * Y_K)
        if BIAS:
            bias += g * K
        if RESIDUAL:
            residual += g * (K * Y_K)
    k = tile_n * BN + tl.arange(0, BN)

    # Rows and columns past the end read the last one again, which is cheaper than masking every load.
    m_read = tl.minimum(m, M - 1)
    k_read = tl.minimum(k, K - 1) if K % BN else k
    plane = m_read // (Z * P * Q) * DP + m_read // (P * Q) % Z * STRIDE_D
    pixel = (plane * HP + m_read // Q % P * STRIDE_H) * WP + m_read % Q * STRIDE_W
    # Sums have the scale of the column with the smallest factor, unless others are scaled by 2^40 more, whose sums
    # would overflow although the outputs do not. At least 2^-23 (exponent 104) keeps the factors of all pixels above 0.
    common = 1.0
    if SCALED:
        exponents = exponent_of(tl.load(k_scales + k_read))
        shared = tl.maximum(tl.minimum(tl.max(exponents, axis=0), tl.min(exponents, axis=0) + 40), 104)
        common = (shared << 23).to(tl.float32, bitcast=True)
    x_rows = staged + pixel * X_PIXEL
    scale_rows = x_scales + (pixel // WP if FOLDED else pixel)
    w_columns = w + k_read * (EACH * ROW)
    total = sum_over_taps(
        x_rows, scale_rows, w_columns, common, part,
        PIXELS, HP, WP, PITCH, X_PIXEL, X_LOW, FOLDED, FOLDED > 0 and not WHOLE, T, R, S,
        DILATION_D, DILATION_H, DILATION_W, EACH, SCALED, EXACT, BM, BN, BK, PARTS,
    )  # fmt: skip
    if WHOLE:
        # A weight of 0 times an infinity is NaN. Such tiles are rare and are computed again without these numbers.
        lost = total != total
        if any_of(lost):
            total = sum_over_taps(
                x_rows, scale_rows, w_columns, common, part,
                PIXELS, HP, WP, PITCH, X_PIXEL, X_LOW, FOLDED, True, T, R, S,
                DILATION_D, DILATION_H, DILATION_W, EACH, SCALED, EXACT, BM, BN, BK, PARTS,
            )  # fmt: skip
    if SCALED:
        total = times_power(total, (exponents - shared)[None, :])
    write_sums(
        total, m, tile_n * BN, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, Y_PLANES,
        BIAS, RESIDUAL, ACTIVATION, WIDE, BN,
    )  # fmt: skip
