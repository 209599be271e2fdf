"""The kernels: a depthwise convolution with a large filter as products with band matrices.

A block of outputs reads slightly more pixels of an input row than the block has columns. Which tap reads which pixel is
a band matrix: the row of the filter, shifted by one pixel per column. The input pixels of many blocks of a channel are
multiplied by one such matrix. Most of its elements are zeros, and still tensor cores are many times faster at it than
other instructions at the taps alone. There are fewer zeros if a block is as wide as the output and reads exactly one
row of the image.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


# fmt: off
@triton.jit
def bands(
    w, packed, R: tl.constexpr, S: tl.constexpr, W_K: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FLIP: tl.constexpr, BEFORE: tl.constexpr, FIRST: tl.constexpr, BANDS: tl.constexpr, BQ: tl.constexpr,
    XW: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """packed = for each output channel BANDS matrices BQ XW, one per input row that taps may read, after FIRST matrices
    of zeros. In each matrix column s has BEFORE zeros plus the offset of output column s, then its taps; if BEFORE is
    negative, the first -BEFORE taps are dropped. FLIP mirrors the taps."""
    wait_for_the_kernel_ahead(OVERLAPS)
    program = tl.program_id(0)
    k = (program // BANDS).to(tl.int64)
    row = program % BANDS - FIRST
    q = tl.arange(0, BQ)[:, None]
    j = tl.arange(0, XW)[None, :]
    column = j - q * STRIDE_W - BEFORE
    r = row // DILATION_H
    s = column // DILATION_W
    there = (row >= 0) & (row % DILATION_H == 0) & (r < R)
    there = there & (column >= 0) & (column % DILATION_W == 0) & (s < S)
    if FLIP:
        r = R - 1 - r
        s = S - 1 - s
    value = tl.load(w + k * W_K + r * W_R + s * W_S, mask=there, other=0.0)
    tl.store(packed + (k * BANDS + program % BANDS) * (BQ * XW) + q * XW + j, value)


# fmt: off
@triton.jit
def _pixel_by_pixel(
    x, packed, n, q, h, v, there, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_N: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr, BEFORE: tl.constexpr, FIRST: tl.constexpr, BQ: tl.constexpr, XW: tl.constexpr,
):
    # fmt: on
    """The sums of the taps for the pixels in columns q of their blocks, whose first taps read at (h, v). No pixel reads
    its neighbours' input."""
    column = q * (XW + STRIDE_W) + BEFORE
    total = tl.zeros(v.shape, tl.float32)
    for tap in tl.range(R * S):
        down = tap // S * DILATION_H
        along = tap % S * DILATION_W
        inside = there & (h + down >= 0) & (h + down < H) & (v + along >= 0) & (v + along < W)
        value = tl.load(x + (n * X_N + (h + down) * X_H + (v + along) * X_W), mask=inside, other=0.0)
        weight = tl.load(packed + (FIRST + down) * (BQ * XW) + (column + along), mask=inside, other=0.0)
        total += value.to(tl.float32) * weight.to(tl.float32)
    return total


# fmt: off
@triton.jit
def _places(
    pixel, block, span_p, span_q, ALL: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, BP: tl.constexpr,
    BQ: tl.constexpr,
):
    # fmt: on
    """Row and column of this pixel in each block, and whether it exists."""
    p = (span_p * BP)[:, None] + (pixel // BQ)[None, :]
    q = (span_q * BQ)[:, None] + (pixel % BQ)[None, :]
    return p, q, (block < ALL)[:, None] & (pixel < BP * BQ)[None, :] & (p < P) & (q < Q)


@triton.jit
def _write(total, y, bias, residual, at, kept, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr):
    if RESIDUAL:
        total += tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
    if BIAS:
        total += tl.load(bias).to(tl.float32)
    tl.store(y + at, activated(total, ACTIVATION, y.dtype.element_ty).to(y.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def banded_gemm(
    x, packed, bias, residual, y,
    N: tl.constexpr, EACH: tl.constexpr, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, WIDE: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    BEFORE: tl.constexpr, FIRST: tl.constexpr, BANDS: tl.constexpr, READ: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr, XW: tl.constexpr, STAGES: tl.constexpr,
    FEW: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias) for a depthwise convolution with EACH output channels per input
    channel. ``packed`` is w as stored by `bands`.

    A program computes BM blocks of one channel, each BP rows by BQ columns, padded to BN pixels. Blocks read READ input
    rows of XW pixels each, starting BEFORE pixels before the first tap. Blocks of the same rows are adjacent, so a
    program skips rows that are outside the image for all of its blocks.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    SPANS_P: tl.constexpr = (P + BP - 1) // BP
    SPANS_Q: tl.constexpr = (Q + BQ - 1) // BQ
    ALL: tl.constexpr = N * SPANS_P * SPANS_Q
    PROGRAMS: tl.constexpr = (ALL + BM - 1) // BM

    # Programs of one channel, which read the same bands, are adjacent.
    program = tl.program_id(0)
    k = (program // PROGRAMS).to(tl.int64)
    block = program % PROGRAMS * BM + tl.arange(0, BM)
    span_q = block % SPANS_Q
    n = block // SPANS_Q % N
    span_p = block // (N * SPANS_Q)
    if WIDE:
        n = n.to(tl.int64)
    h = span_p * (BP * STRIDE_H) - TOP
    v = (span_q * (BQ * STRIDE_W))[:, None] + tl.arange(0, XW)[None, :] - (LEFT + BEFORE)
    readable = (block < ALL)[:, None] & (v >= 0) & (v < W)
    x += k // EACH * X_C
    y += k * Y_K
    if RESIDUAL:
        residual += k * Y_K
    if BIAS:
        bias += k
    packed += k * (BANDS * BQ * XW)
    x_at = x + ((n * X_N + h * X_H)[:, None] + v * X_W)
    pixel = tl.arange(0, BN)
    band = (FIRST - pixel // BQ * STRIDE_H) * (BQ * XW) + pixel % BQ * XW
    w_at = packed + (tl.arange(0, XW)[:, None] + band[None, :])
    first_row = 0
    end_row = READ
    # A single row needs no loop: the stages of a loop would limit the blocks per multiprocessor.
    if READ > 1:
        highest = (program % PROGRAMS * BM) // (N * SPANS_Q) * (BP * STRIDE_H) - TOP
        lowest = (min(program % PROGRAMS * BM + BM, ALL) - 1) // (N * SPANS_Q) * (BP * STRIDE_H) - TOP
        first_row = max(0, -lowest)
        end_row = min(READ, H - highest)
    total = tl.zeros((BM, BN), tl.float32)
    for row in tl.range(first_row, end_row, num_stages=STAGES):
        inside = readable & ((h + row >= 0) & (h + row < H))[:, None]
        values = tl.load(x_at + row * X_H, mask=inside, other=0.0)
        total = tl.dot(values, tl.load(w_at + row * (BQ * XW)), total)

    # Zeros of a band turn a neighbour's infinity into NaN. Such tiles are rare and computed pixel by pixel, a few
    # pixels at a time to save registers.
    if tl.max(((total - total) != 0).to(tl.int32)) > 0:
        for first in tl.range(0, BN, FEW):
            few = first + tl.arange(0, FEW)
            few_p, few_q, there = _places(few, block, span_p, span_q, ALL, P, Q, BP, BQ)
            sums = _pixel_by_pixel(
                x, packed, n[:, None], (few % BQ)[None, :], few_p * STRIDE_H - TOP, few_q * STRIDE_W - LEFT, there,
                H, W, R, S, X_N, X_H, X_W, STRIDE_W, DILATION_H, DILATION_W, BEFORE, FIRST, BQ, XW,
            )  # fmt: skip
            few_at = (n * Y_N)[:, None] + few_p * Y_P + few_q * Y_Q
            _write(sums, y, bias, residual, few_at, there, BIAS, RESIDUAL, ACTIVATION)
    else:
        all_p, all_q, kept = _places(pixel, block, span_p, span_q, ALL, P, Q, BP, BQ)
        at = (n * Y_N)[:, None] + all_p * Y_P + all_q * Y_Q
        _write(total, y, bias, residual, at, kept, BIAS, RESIDUAL, ACTIVATION)
