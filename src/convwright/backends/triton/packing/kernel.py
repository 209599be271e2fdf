"""Kernels that pack a weight, rounded to TF32 or split into two such numbers, in one launch."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.tf32 import tf32


@triton.jit
def _stored(to, rest, value, mask, PACKED: tl.constexpr, SPLIT: tl.constexpr):
    """Store ``value``: rounded to TF32 if PACKED, and with SPLIT the remainder ``rest`` elements later."""
    high = tf32(value) if PACKED else value
    tl.store(to, high, mask=mask)
    if SPLIT:
        tl.store(to + rest, value - high, mask=mask)


# fmt: off
@triton.jit
def packed_rows(
    w, packed, ROWS: tl.constexpr, GROUP: tl.constexpr, W_GROUP: tl.constexpr, W_ROW: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    INNER: tl.constexpr, W_INNER: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """packed = w rounded to TF32, as ROWS T R S INNER, and with SPLIT the remainder after it. In w, GROUP rows are
    W_ROW elements apart, and groups of rows W_GROUP."""
    wait_for_the_kernel_ahead(OVERLAPS)
    LENGTH: tl.constexpr = T * R * S * INNER
    BLOCKS: tl.constexpr = (LENGTH + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    row = (program // BLOCKS).to(tl.int64)
    at = program % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    tap = at // INNER
    column = tap // S
    within = tap % S * W_S + column % R * W_R + column // R * W_T + at % INNER * W_INNER
    first = row // GROUP * W_GROUP + row % GROUP * W_ROW
    value = tl.load(w + first + within, mask=at < LENGTH)
    _stored(packed + row * LENGTH + at, ROWS * LENGTH, value, at < LENGTH, True, SPLIT)


@triton.jit
def _spread(first, second, third):
    """G times three taps."""
    outer = first + third
    return first, (outer + second) * 0.5, (outer - second) * 0.5, third


# fmt: off
@triton.jit
def _column(
    taps, itself, s: tl.constexpr, real,
    W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr, TAP: tl.constexpr,
):
    # fmt: on
    """G times the taps of column s, which are stored TAP elements apart."""
    of_column = taps + (2 - s if FLIP else s) * W_S
    first = tl.load(of_column + (2 * W_R if FLIP else 0), mask=real, other=0.0)
    second = tl.load(of_column + W_R, mask=real, other=0.0)
    third = tl.load(of_column + (0 if FLIP else 2 * W_R), mask=real, other=0.0)
    tl.store(itself + s * TAP, first, mask=real)
    tl.store(itself + (3 + s) * TAP, second, mask=real)
    tl.store(itself + (6 + s) * TAP, third, mask=real)
    return _spread(first.to(tl.float64), second.to(tl.float64), third.to(tl.float64))


# fmt: off
@triton.jit
def transformed_weight(
    w, packed, C: tl.constexpr, K: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_R: tl.constexpr,
    W_S: tl.constexpr, FLIP: tl.constexpr, PITCH: tl.constexpr, PACKED: tl.constexpr, BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """packed = G w G' in float64, rounded once, as 16 K PITCH; if PACKED, rounded to TF32 with the remainder after it;
    then w itself, as 9 C K. FLIP mirrors the taps."""
    wait_for_the_kernel_ahead(OVERLAPS)
    POINT: tl.constexpr = K * PITCH
    TAP: tl.constexpr = C * K
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = at // PITCH
    c = at % PITCH
    there = at < POINT
    real = there & (c < C)
    taps = w + (k.to(tl.int64) * W_K + c * W_C)
    itself = packed + (2 if PACKED else 1) * (16 * POINT) + (c * K + k)
    left = _column(taps, itself, 0, real, W_R, W_S, FLIP, TAP)
    middle = _column(taps, itself, 1, real, W_R, W_S, FLIP, TAP)
    right = _column(taps, itself, 2, real, W_R, W_S, FLIP, TAP)
    for row in tl.static_range(4):
        points = _spread(left[row], middle[row], right[row])
        for column in tl.static_range(4):
            to = packed + (4 * row + column) * POINT + at
            _stored(to, 16 * POINT, points[column].to(tl.float32), there, PACKED, PACKED)
