"""The same sums pixel by pixel, for what is not finite."""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import derived
from convwright.backends.triton.few_weights.patches import place_of
from convwright.backends.triton.loading import loaded


# fmt: off
@triton.jit
def sum_by_pixel(
    x, dy, z, first, channel_there, r, s,
    N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, Y_N: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, WIDE: tl.constexpr,
    GAP_H: tl.constexpr, GAP_W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    SPANS_H: tl.constexpr, SPANS_W: tl.constexpr, STEPS: tl.constexpr, TOGETHER: tl.constexpr, LANES: tl.constexpr,
    DERIVATIVE: tl.constexpr,
    d_first, D: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, Y_Z: tl.constexpr, STRIDE_D: tl.constexpr,
    DEEP: tl.constexpr,
):
    # fmt: on
    """The sum of one channel for one tap and one output over the same patches, which reads of the input no pixel but
    those that pixels of the image need."""
    total = tl.zeros((LANES,), tl.float32)
    for step in tl.range(STEPS * ROWS * COLUMNS):
        patch = first + step // (ROWS * COLUMNS) * TOGETHER
        n, z_place, p, q, there = place_of(patch, N, Z, SPANS_H, SPANS_W, GAP_H, GAP_W, ROWS, COLUMNS, WIDE)
        p += step % (ROWS * COLUMNS) // COLUMNS * GAP_H
        q += step % COLUMNS * GAP_W
        there = there & channel_there & (p < P) & (q < Q)
        h = p * STRIDE_H - TOP + r * DILATION_H
        v = q * STRIDE_W - LEFT + s * DILATION_W
        real = there & (h.to(tl.uint32) < H) & (v.to(tl.uint32) < W)
        y_at = n * Y_N + p * Y_P + q * Y_Q
        x_at = n * X_N + h * X_H + v * X_W
        if Z > 1:
            y_at += z_place * Y_Z
        if DEEP:
            d = z_place * STRIDE_D + d_first
            x_at += d * X_D
            real = real & (d.to(tl.uint32) < D)
        gradient = loaded(dy + y_at, there, True)
        if DERIVATIVE != "none":
            gradient = derived(gradient, loaded(z + y_at, there, True), DERIVATIVE)
        total += loaded(x + x_at, real, True) * gradient
    return total
