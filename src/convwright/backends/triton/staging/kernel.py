"""What kernels have in common that stage operands: how they read them, and how they lay numbers of fp16."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import pixels_by_channels

# Numbers of fp32 as two of fp16 beside a power of two that some of them share, as Triton kernels split them.


@triton.jit
def magnitude(value):
    """Whole numbers in the order of those of fp32 without their signs; what is not finite counts for nothing."""
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits < 0x7F800000, bits, 0)


@triton.jit
def shared_exponent(magnitudes, axis: tl.constexpr):
    """That of the largest number along ``axis``, as fp32 stores it; 0 where there is none but 0."""
    largest = tl.max(magnitudes, axis=axis)
    # Of less than 15 the power of two that lowers would not be one that fp32 has.
    return tl.where(largest == 0, 0, tl.maximum(largest >> 23, 15))


@triton.jit
def _known(exponent):
    """One that neither raises nor lowers, where there is none: a 0 for a power of two would make NaN of an infinity."""
    return tl.where(exponent == 0, 141, exponent)


@triton.jit
def raising(exponent):
    """The power of two that lifts the largest number to 2^14 and more, where fp16 has most room below it."""
    return ((268 - _known(exponent)) << 23).to(tl.float32, bitcast=True)


@triton.jit
def lowering(exponent):
    """Its inverse."""
    return ((_known(exponent) - 14) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exponent_of(power):
    """Of a power of two, which fp32 stores so."""
    return power.to(tl.int32, bitcast=True) >> 23


@triton.jit
def times_power(value, exponent):
    """``value`` times 2^``exponent``, in two steps: fp32 has no power of two for what is between two of its numbers."""
    half = exponent >> 1
    first = ((127 + half) << 23).to(tl.float32, bitcast=True)
    return value * first * ((127 + exponent - half) << 23).to(tl.float32, bitcast=True)


@triton.jit
def as_fp16(value):
    """A raised ``value`` in fp16, which is as near as TF32, unless that is 2^28 times smaller than the largest that it
    is raised with. No number but 0 becomes 0: beside an infinity it would make NaN."""
    LEAST: tl.constexpr = 5.960464477539063e-08  # 2^-24
    rounded = value.to(tl.float16)
    least = tl.where(value > 0, LEAST, -LEAST).to(tl.float16)
    return tl.where((rounded == 0) & (value != 0), least, rounded)


@triton.jit
def fp16_parts(value):
    """Two numbers of fp16, the second of which counts for 2^-11 of itself: 22 bits and more of a raised ``value``,
    unless that is 2^28 times smaller than the largest that it is raised with.

    Three products of such parts are summed: low by high, high by low, high by high. What is not finite is a low part
    beside a 1 of its sign, and no number but 0 has a high part of 0, so that IEEE's infinity or NaN comes out.
    """
    high = as_fp16(value)
    finite = (value.to(tl.int32, bitcast=True) & 0x7F800000) != 0x7F800000
    high = tl.where(finite, high, tl.where(value < 0, -1.0, 1.0).to(tl.float16))
    low = tl.where(finite, (value - high.to(tl.float32)) * 2048.0, value)
    return high, low.to(tl.float16)


@triton.jit
def _finite(part):
    return tl.where(tl.abs(part) < float("inf"), part, 0.0)


@triton.jit
def dot_3xfp16(left_high, left_low, right_high, right_low, EXACT: tl.constexpr):
    """The product of raised tiles by three of their parts, summed from zero; EXACT by all four."""
    small = tl.dot(left_low, right_high)
    small = tl.dot(left_high, right_low, small)
    if EXACT:
        small += tl.dot(_finite(left_low), _finite(right_low)) * 0.00048828125
    return tl.dot(left_high, right_high) + small * 0.00048828125


# fmt: off
@triton.jit
def block_of_pixels(
    x, pixel, block, C: tl.constexpr, N: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    X_PLANES: tl.constexpr, WIDE: tl.constexpr, BC: tl.constexpr,
):
    # fmt: on
    """A block of BC channels of these of N DP HP WP pixels, a row for each, zeros beyond the image and its channels.

    Blocks of a group of C channels follow each other. Where x lies in planes it is read along the pixels.
    (FRONT, TOP, LEFT) is where the image begins, and WIDE makes its offsets 64 bits wide.
    """
    BLOCKS: tl.constexpr = (C + BC - 1) // BC
    c = block % BLOCKS * BC + tl.arange(0, BC)
    n = pixel // (DP * HP * WP)
    d = pixel // (HP * WP) % DP - FRONT
    h = pixel // WP % HP - TOP
    v = pixel % WP - LEFT
    there = (n < N) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
    if WIDE:
        n = n.to(tl.int64)
    pixels = n * X_N + d * X_D + h * X_H + v * X_W
    x_at = x + pixels_by_channels(pixels, (block // BLOCKS * C + c) * X_C, WP, X_W, X_PLANES)
    real = tl.expand_dims(there, 0 if X_PLANES else 1) & tl.expand_dims(c < C, 1 if X_PLANES else 0)
    value = tl.load(x_at, mask=real, other=0.0)
    return tl.trans(value) if X_PLANES else value


@triton.jit
def tile_and_block(program, TILES: tl.constexpr, BLOCKS: tl.constexpr, X_PLANES: tl.constexpr):
    """Which pixels and which channels a program has, so that neighbouring ones read side by side."""
    if X_PLANES:
        return program % TILES, program // TILES
    return program // BLOCKS, program % BLOCKS


@triton.jit
def store_raised(to, value, kept, APART: tl.constexpr, EACH: tl.constexpr):
    """A raised ``value`` as EACH so many numbers, low parts APART behind high ones."""
    if EACH == 2:
        high, low = fp16_parts(value)
        tl.store(to, high, mask=kept)
        tl.store(to + APART, low, mask=kept)
    else:
        tl.store(to, as_fp16(value), mask=kept)


@triton.jit
def scales_behind(numbers, at: tl.constexpr):
    """Where scales lie: ``at`` so many numbers of fp32."""
    return numbers.to(tl.pointer_type(tl.float32), bitcast=True) + at
