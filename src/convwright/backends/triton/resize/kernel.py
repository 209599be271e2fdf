"""The kernel for resizing: each output element is the nearest input pixel, or interpolated from two along each
dimension.

A program has some adjacent elements along the output's densest dimension in its columns, and some rows of all other
dimensions. Pixels that several elements read come from the cache.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.loading import loaded


# fmt: off
@triton.jit
def _around(
    place, SIZE: tl.constexpr, STEP: tl.constexpr, SHIFT: tl.constexpr, STAYS: tl.constexpr, NEAREST: tl.constexpr,
    FUSED: tl.constexpr, WIDE: tl.constexpr,
):
    # fmt: on
    """The two pixels around each position, and the second one's weight. A position is rounded once, as in PyTorch's
    kernels; without a fused multiply-add it is computed with more bits."""
    at = place.to(tl.float32) + SHIFT
    if NEAREST:
        position = at * STEP
    elif FUSED:
        position = tl.fma(at, STEP, 0.0 - SHIFT)
    else:
        position = (at.to(tl.float64) * STEP - SHIFT).to(tl.float32)
    position = tl.maximum(position, 0.0)
    first = tl.minimum(tl.floor(position).to(tl.int32), SIZE - 1)
    weight = position - first.to(tl.float32)
    second = first if STAYS else tl.minimum(first + 1, SIZE - 1)
    if WIDE:
        first = first.to(tl.int64)
        second = second.to(tl.int64)
    return first, second, weight


@triton.jit
def _mean(first, second, weight):
    """The weighted mean. An infinity is also multiplied by zero, as in PyTorch."""
    return (1.0 - weight) * first + weight * second


@triton.jit
def _in_row(x, w0, w1, w_weight, there, X_W: tl.constexpr, MASKED: tl.constexpr):
    first = loaded(x + w0 * X_W, there, MASKED).to(tl.float32)
    return _mean(first, loaded(x + w1 * X_W, there, MASKED).to(tl.float32), w_weight)


# fmt: off
@triton.jit
def _in_plane(
    x, h0, h1, h_weight, w0, w1, w_weight, there, RANK: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    MASKED: tl.constexpr,
):
    # fmt: on
    value = _in_row(x + h0 * X_H, w0, w1, w_weight, there, X_W, MASKED)
    if RANK > 1:
        value = _mean(value, _in_row(x + h1 * X_H, w0, w1, w_weight, there, X_W, MASKED), h_weight)
    return value


# fmt: off
@triton.jit
def resized(
    x, y, ROW_COUNT: tl.constexpr, COLUMN_COUNT: tl.constexpr, INNER: tl.constexpr,
    C: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_C: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STEP_D: tl.constexpr, STEP_H: tl.constexpr, STEP_W: tl.constexpr, SHIFT: tl.constexpr,
    RANK: tl.constexpr, NEAREST: tl.constexpr, FUSED: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = x resized from D H W to Z P Q pixels. The columns are dimension INNER of N C Z P Q, which has COLUMN_COUNT
    elements. ROW_COUNT is 0 if the rows fill their tiles."""
    wait_for_the_kernel_ahead(OVERLAPS)
    BLOCKS: tl.constexpr = (COLUMN_COUNT + COLUMNS - 1) // COLUMNS
    MASKED: tl.constexpr = ROW_COUNT > 0 or COLUMN_COUNT % COLUMNS > 0
    program = tl.program_id(0)
    row = (program // BLOCKS).to(tl.int64) if WIDE else program // BLOCKS
    column = (program % BLOCKS).to(tl.int64) if WIDE else program % BLOCKS
    row = row * ROWS + tl.arange(0, ROWS)[:, None]
    column = column * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    there = column < COLUMN_COUNT
    if ROW_COUNT > 0:
        there = there & (row < ROW_COUNT)
    q, p, z, c, n = column, column, column, column, column
    if INNER != 4:
        q = row % Q
        row = row // Q
    if INNER != 3:
        p = row % P
        row = row // P
    if INNER != 2:
        z = row % Z
        row = row // Z
    if INNER != 1:
        c = row % C
        row = row // C
    if INNER != 0:
        n = row
    d0, d1, d_weight = _around(z, D, STEP_D, SHIFT, D == Z, NEAREST, FUSED, WIDE)
    h0, h1, h_weight = _around(p, H, STEP_H, SHIFT, H == P, NEAREST, FUSED, WIDE)
    w0, w1, w_weight = _around(q, W, STEP_W, SHIFT, W == Q, NEAREST, FUSED, WIDE)
    x += n * X_N + c * X_C
    if NEAREST:
        value = loaded(x + d0 * X_D + h0 * X_H + w0 * X_W, there, MASKED)
    else:
        value = _in_plane(x + d0 * X_D, h0, h1, h_weight, w0, w1, w_weight, there, RANK, X_H, X_W, MASKED)
        if RANK > 2:
            other = _in_plane(x + d1 * X_D, h0, h1, h_weight, w0, w1, w_weight, there, RANK, X_H, X_W, MASKED)
            value = _mean(value, other, d_weight)
    to = y + n * Y_N + c * Y_C + z * Y_Z + p * Y_P + q * Y_Q
    value = value.to(y.dtype.element_ty)
    if MASKED:
        tl.store(to, value, mask=there)
    else:
        tl.store(to, value)
