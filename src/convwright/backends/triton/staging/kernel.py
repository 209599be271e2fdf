"""What kernels have in common that stage operands: how they read them, and how they lay numbers of fp16."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import pixels_by_channels
from convwright.backends.triton.staging.fp16_parts import as_fp16, fp16_parts


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
