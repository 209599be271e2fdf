"""Shared by kernels that stage operands: loads, and stores of fp16 numbers."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import pixels_by_channels

# fp32 numbers as two fp16 numbers with a power of two that several share.


@triton.jit
def magnitude(value):
    """Integers in the order of the fp32 numbers' magnitudes; 0 for numbers that are not finite."""
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.where(bits < 0x7F800000, bits, 0)


@triton.jit
def shared_exponent(magnitudes, axis: tl.constexpr):
    """The exponent of the largest number along ``axis``, as fp32 stores it; 0 if all are 0."""
    largest = tl.max(magnitudes, axis=axis)
    # Below 15, the inverse power of two would not be an fp32 number.
    return tl.where(largest == 0, 0, tl.maximum(largest >> 23, 15))


@triton.jit
def _known(exponent):
    """An exponent that scales by 1 if there is none: a power of two of 0 would turn an infinity into NaN."""
    return tl.where(exponent == 0, 141, exponent)


@triton.jit
def raising(exponent):
    """The power of two that scales the largest number to 2^14 or more, where fp16 has the widest range below it."""
    return ((268 - _known(exponent)) << 23).to(tl.float32, bitcast=True)


@triton.jit
def lowering(exponent):
    """Its inverse."""
    return ((_known(exponent) - 14) << 23).to(tl.float32, bitcast=True)


@triton.jit
def exponent_of(power):
    """The exponent of a power of two, as fp32 stores it."""
    return power.to(tl.int32, bitcast=True) >> 23


@triton.jit
def times_power(value, exponent):
    """``value`` times 2^``exponent``, in two steps, since the exponent may be beyond those of fp32."""
    half = exponent >> 1
    first = ((127 + half) << 23).to(tl.float32, bitcast=True)
    return value * first * ((127 + exponent - half) << 23).to(tl.float32, bitcast=True)


@triton.jit
def as_fp16(value):
    """A scaled ``value`` in fp16, as accurate as TF32 unless it is 2^28 times smaller than the largest number with the
    same scale. Only 0 becomes 0: a zero times an infinity would be NaN."""
    LEAST: tl.constexpr = 5.960464477539063e-08  # 2^-24
    rounded = value.to(tl.float16)
    least = tl.where(value > 0, LEAST, -LEAST).to(tl.float16)
    return tl.where((rounded == 0) & (value != 0), least, rounded)


@triton.jit
def fp16_parts(value):
    """Two fp16 numbers, the second scaled by 2^-11: at least 22 bits of a scaled ``value``, unless it is 2^28 times
    smaller than the largest number with the same scale.

    Three products of such parts are summed: low by high, high by low, high by high. A number that is not finite is
    stored as the low part, with a high part of 1 of its sign; only 0 has a high part of 0. So the result is IEEE's
    infinity or NaN.
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
    """The product of scaled tiles by three products of their parts, summed from zero; by all four if EXACT."""
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
    """A block of BC channels of these pixels of N DP HP WP, one row per pixel, with zeros outside the image and after
    its channels.

    The blocks of a group of C channels are consecutive. NCHW inputs are read along the pixels. (FRONT, TOP, LEFT) is
    the start of the image, and WIDE selects 64-bit offsets.
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
    """The pixels and channels of a program, ordered so that neighbouring programs read adjacent memory."""
    if X_PLANES:
        return program % TILES, program // TILES
    return program // BLOCKS, program % BLOCKS


@triton.jit
def store_raised(to, value, kept, APART: tl.constexpr, EACH: tl.constexpr):
    """Store a scaled ``value`` as EACH numbers, low parts APART elements after high ones."""
    if EACH == 2:
        high, low = fp16_parts(value)
        tl.store(to, high, mask=kept)
        tl.store(to + APART, low, mask=kept)
    else:
        tl.store(to, as_fp16(value), mask=kept)


@triton.jit
def scales_after(numbers, at: tl.constexpr):
    """A pointer to the scales, ``at`` fp32 numbers from the start."""
    return numbers.to(tl.pointer_type(tl.float32), bitcast=True) + at
