"""The kernels: a weight gradient of fp32 numbers by fp16 products, on operands that are staged first.

Rows are the weight's taps and input channels (t, r, s, c), columns are its output channels k, and the sum runs over
output pixels (n, z, p, q). Each number becomes two fp16 numbers, or one if TF32 is allowed, with a power of two that
all numbers of its channel share. A first kernel finds the largest number of each channel, a second one stages the
numbers, pixel by pixel, with zeros outside the image. The sum is divided into parts, each with its own programs.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.parts.kernel import weight_at
from convwright.backends.triton.staging.kernel import (
    block_of_pixels,
    dot_3xfp16,
    exponent_of,
    lowering,
    magnitude,
    raising,
    shared_exponent,
    store_raised,
    tile_and_block,
    times_power,
)


@triton.jit
def _largest(x, workspace, program, X: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """Exponents of the largest number of each channel in each chunk of all pixels, stored after the scales, chunk by
    chunk. A program reads one chunk of BC channels, BP pixels at a time."""
    LAYOUT: tl.constexpr = X.layout
    PIXELS: tl.constexpr = LAYOUT.n * LAYOUT.d * LAYOUT.h * LAYOUT.w
    TURNS: tl.constexpr = (PIXELS + X.chunks * BP - 1) // (X.chunks * BP)
    chunk, block = tile_and_block(program, X.chunks, X.channels // BC, LAYOUT.in_planes)
    largest = tl.zeros((BP, BC), tl.int32)
    for turn in tl.range(TURNS, loop_unroll_factor=4):
        pixel = (chunk * TURNS + turn) * BP + tl.arange(0, BP)
        value = block_of_pixels(
            x, pixel, block, LAYOUT.channels, LAYOUT.n, LAYOUT.d, LAYOUT.h, LAYOUT.w,
            LAYOUT.stride_n, LAYOUT.stride_c, LAYOUT.stride_d, LAYOUT.stride_h, LAYOUT.stride_w,
            LAYOUT.d, LAYOUT.h, LAYOUT.w, 0, 0, 0, LAYOUT.in_planes, LAYOUT.far, BC,
        )  # fmt: skip
        largest = tl.maximum(largest, magnitude(value))
    exponent = shared_exponent(largest, 0)
    found = workspace.to(tl.pointer_type(tl.int32), bitcast=True) + (X.scales_at + X.channels)
    tl.store(found + chunk * X.channels + block * BC + tl.arange(0, BC), exponent)


# fmt: off
@triton.jit
def largest_of_channels(
    x, dy, workspace, X: tl.constexpr, DY: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """The largest number of each channel of both operands, whose layout and staging are described by X and DY."""
    wait_for_the_kernel_ahead(OVERLAPS)
    program = tl.program_id(0)
    if program < X.searchers:
        _largest(x, workspace, program, X, BP, BC)
    else:
        _largest(dy, workspace, program - X.searchers, DY, BP, BC)


@triton.jit
def _stage(x, workspace, program, X: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """Stage one operand, with all numbers of a pixel contiguous, in alternating blocks of BC high and low parts, and
    the scale of each channel. A program stages one block of BP pixels."""
    LAYOUT: tl.constexpr = X.layout
    tile, block = tile_and_block(program, (X.pixels + BP - 1) // BP, X.channels // BC, LAYOUT.in_planes)
    pixel = tile * BP + tl.arange(0, BP)
    within = tl.arange(0, BC)
    scales = workspace.to(tl.pointer_type(tl.int32), bitcast=True) + X.scales_at
    chunk = tl.arange(0, X.chunks_at_once)
    found = scales + X.channels + (chunk * X.channels)[:, None] + (block * BC + within)[None, :]
    exponent = tl.max(tl.load(found, mask=(chunk < X.chunks)[:, None], other=0), axis=0)
    value = block_of_pixels(
        x, pixel, block, LAYOUT.channels, LAYOUT.n, LAYOUT.d, LAYOUT.h, LAYOUT.w,
        LAYOUT.stride_n, LAYOUT.stride_c, LAYOUT.stride_d, LAYOUT.stride_h, LAYOUT.stride_w,
        LAYOUT.deep, LAYOUT.high, LAYOUT.wide, LAYOUT.front, LAYOUT.top, LAYOUT.left, LAYOUT.in_planes, LAYOUT.far, BC,
    )  # fmt: skip
    at = workspace + X.numbers_at + (pixel * (X.each * X.channels))[:, None] + (block * (X.each * BC) + within)[None, :]
    store_raised(at, value * raising(exponent)[None, :], (pixel < X.pixels)[:, None], BC, X.each)
    if tile == 0:
        tl.store(scales + block * BC + within, lowering(exponent).to(tl.int32, bitcast=True))


# fmt: off
@triton.jit
def staged_by_channels(
    x, dy, workspace, X: tl.constexpr, DY: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """Both operands staged, as X and DY describe."""
    wait_for_the_kernel_ahead(OVERLAPS)
    program = tl.program_id(0)
    if program < X.stagers:
        _stage(x, workspace, program, X, BP, BC)
    else:
        _stage(dy, workspace, program - X.stagers, DY, BP, BC)


# fmt: off
@triton.jit
def staged_weight_gradient(
    workspace, out,
    N: tl.constexpr, C: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, G: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    X_PITCH: tl.constexpr, X_SCALES_AT: tl.constexpr,
    Y_BEGINS: tl.constexpr, Y_PITCH: tl.constexpr, Y_SCALES_AT: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    EACH: tl.constexpr, BC: tl.constexpr, PARTS: tl.constexpr, SUMMED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """out = the gradient, in G groups with C input and K output channels each. If SUMMED, out = the sums of PARTS in
    fp32 as PARTS K T R S C, with the K of all groups.

    The workspace contains the input as N DP HP WP X_PITCH, and from Y_BEGINS on the output gradient as N Z P Q Y_PITCH,
    with EACH numbers per element; each is followed by the scales of its channels.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    M: tl.constexpr = N * Z * P * Q
    TAPS: tl.constexpr = T * R * S
    STEPS: tl.constexpr = (M + BK * PARTS - 1) // (BK * PARTS)
    TAIL: tl.constexpr = STEPS * BK * PARTS > M
    TILES_C: tl.constexpr = (C + BM - 1) // BM
    TILES_M: tl.constexpr = TAPS * TILES_C
    TILES_K: tl.constexpr = (K + BN - 1) // BN
    TILES_N: tl.constexpr = G * TILES_K

    # All programs of one part read the same pixels, which stay in the cache.
    program = tl.program_id(0)
    part = program // (TILES_M * TILES_N)
    tile_m = program // TILES_N % TILES_M
    g = program % TILES_N // TILES_K
    tap = tile_m // TILES_C
    c = tile_m % TILES_C * BM + tl.arange(0, BM)
    k = program % TILES_K * BN + tl.arange(0, BN)
    # Rows and columns past the end of a group read zeros, or the following data, and are not stored.
    x_c = g * (X_PITCH // G) + c
    y_k = g * (Y_PITCH // G) + k
    moved = (tap // S % R if T > 1 else tap // S) * (DILATION_H * WP) + tap % S * DILATION_W
    if T > 1:
        moved += tap // (R * S) * (DILATION_D * HP * WP)
    x_rows = workspace + (moved * (EACH * X_PITCH) + x_c // BC * (EACH * BC) + x_c % BC)
    y_columns = workspace + Y_BEGINS + (y_k // BC * (EACH * BC) + y_k % BC)

    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(STEPS):
        m = (part * STEPS + step) * BK + tl.arange(0, BK)
        there = m < M
        plane = m // (Z * P * Q) * DP + m // (P * Q) % Z * STRIDE_D
        pixel = (plane * HP + m // Q % P * STRIDE_H) * WP + m % Q * STRIDE_W
        x_at = x_rows[:, None] + (pixel * (EACH * X_PITCH))[None, :]
        y_at = y_columns[None, :] + (m * (EACH * Y_PITCH))[:, None]
        if TAIL:
            x_high = tl.load(x_at, mask=there[None, :], other=0.0)
            y_high = tl.load(y_at, mask=there[:, None], other=0.0)
        else:
            x_high = tl.load(x_at)
            y_high = tl.load(y_at)
        if EACH == 2:
            if TAIL:
                x_low = tl.load(x_at + BC, mask=there[None, :], other=0.0)
                y_low = tl.load(y_at + BC, mask=there[:, None], other=0.0)
            else:
                x_low = tl.load(x_at + BC)
                y_low = tl.load(y_at + BC)
            # Tensor cores truncate what they add to a running sum; fp32 additions round.
            total += dot_3xfp16(x_high, x_low, y_high, y_low, M <= 32)
        else:
            total = tl.dot(x_high, y_high, total)

    scales = workspace.to(tl.pointer_type(tl.float32), bitcast=True)
    x_exponent = exponent_of(tl.load(scales + X_SCALES_AT + x_c)) - 127
    y_exponent = exponent_of(tl.load(scales + Y_SCALES_AT + y_k)) - 127
    total = times_power(total, x_exponent[:, None] + y_exponent[None, :])
    kept = (c < C)[:, None] & (k < K)[None, :]
    k += g * K
    if SUMMED:
        sums = out + part.to(tl.int64) * (G * K * TAPS * C)
        tl.store(sums + ((tap * C + c)[:, None] + (k * (TAPS * C))[None, :]), total, mask=kept)
    else:
        rows = weight_at(0, tap, c, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
        tl.store(out + (rows[:, None] + (k * W_K)[None, :]), total, mask=kept)
