"""The sums of a thread: patches of the output gradient, each with the input below it, read once."""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import derived
from convwright.backends.triton.loading import loaded


# fmt: off
@triton.jit
def _gradients(
    dy, z, p, q, there, P: tl.constexpr, Q: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    GAP_H: tl.constexpr, GAP_W: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    MASKED: tl.constexpr, RAGGED_H: tl.constexpr, RAGGED_W: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """A patch of the output gradient, (column, k, row). RAGGED: a patch may extend beyond the image."""
    values = ()
    for column in tl.static_range(COLUMNS):
        inside = there & (q + column * GAP_W < Q) if RAGGED_W else there
        for k in tl.static_range(OUTPUTS):
            for row in tl.static_range(ROWS):
                kept = inside & (p + row * GAP_H < P) if RAGGED_H else inside
                behind = k * Y_K + row * GAP_H * Y_P + column * GAP_W * Y_Q
                value = loaded(dy + behind, kept, MASKED)
                if DERIVATIVE != "none":
                    value = derived(value, loaded(z + behind, kept, MASKED), DERIVATIVE)
                values += (value,)
    return values


@triton.jit
def _with_gradients(sums, gradients, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums of each output's gradient plus one patch."""
    more = ()
    for k in tl.static_range(OUTPUTS):
        total = sums[k]
        for column in tl.static_range(COLUMNS):
            for row in tl.static_range(ROWS):
                total += gradients[(column * OUTPUTS + k) * ROWS + row]
        more += (total,)
    return more


# fmt: off
@triton.jit
def _inputs(
    x, h, there, H: tl.constexpr, X_H: tl.constexpr, R: tl.constexpr, DILATION_H: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, BOUNDED: tl.constexpr,
):
    # fmt: on
    """One column of a patch of the input, a value per row that a tap reads."""
    values = ()
    for read in tl.static_range((ROWS - 1) * APART + R):
        if read % APART < R:
            # As an unsigned number, a negative position is far beyond the end of the image.
            kept = there & ((h + read * DILATION_H).to(tl.uint32) < H) if BOUNDED else there
            values += (loaded(x + read * DILATION_H * X_H, kept, MASKED),)
        else:
            values += (0.0,)
    return values


@triton.jit
def _added(
    sums, column, gradients, OUTPUTS: tl.constexpr, R: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr
):
    """The sums of one column of taps, (k, r), plus the products with one column of the input."""
    more = ()
    for k in tl.static_range(OUTPUTS):
        for r in tl.static_range(R):
            total = sums[k * R + r]
            for row in tl.static_range(ROWS):
                total = tl.fma(column[row * APART + r], gradients[k * ROWS + row], total)
            more += (total,)
    return more


# fmt: off
@triton.jit
def _with_patch(
    sums, x, h, v, there, gradients, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_H: tl.constexpr, X_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    APART_H: tl.constexpr, APART_W: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    MASKED: tl.constexpr, BOUNDED: tl.constexpr,
):
    # fmt: on
    """The sums of one input channel, (s, k, r), plus one patch; (h, v) is the position that its first tap reads."""
    HELD: tl.constexpr = OUTPUTS * R
    GIVEN: tl.constexpr = OUTPUTS * ROWS
    for read in tl.static_range((COLUMNS - 1) * APART_W + S):
        if read % APART_W < S:
            inside = there & ((v + read * DILATION_W).to(tl.uint32) < W) if BOUNDED else there
            column = _inputs(
                x + read * DILATION_W * X_W, h, inside, H, X_H, R, DILATION_H, APART_H, ROWS, MASKED, BOUNDED
            )
            more = ()
            for s in tl.static_range(S):
                held = sums[s * HELD : (s + 1) * HELD]
                if (read - s) % APART_W == 0 and s <= read and read - s < COLUMNS * APART_W:
                    given = gradients[(read - s) // APART_W * GIVEN : ((read - s) // APART_W + 1) * GIVEN]
                    more += _added(held, column, given, OUTPUTS, R, APART_H, ROWS)
                else:
                    more += held
            sums = more
    return sums


@triton.jit
def place_of(
    patch, N: tl.constexpr, Z: tl.constexpr, SPANS_H: tl.constexpr, SPANS_W: tl.constexpr, GAP_H: tl.constexpr,
    GAP_W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The image of a patch, its plane, the position of its first pixel there, and whether the patch exists."""
    # Unsigned division takes fewer instructions.
    patch = patch.to(tl.uint32)
    span = patch // SPANS_W
    span_w = (patch % SPANS_W).to(tl.int32)
    span_h = (span % SPANS_H).to(tl.int32)
    image = span // SPANS_H
    z = 0
    if Z > 1:
        z = (image % Z).to(tl.int32)
        image = image // Z
    n = image.to(tl.int64 if WIDE else tl.int32)
    p = span_h // GAP_H * (ROWS * GAP_H) + span_h % GAP_H
    q = span_w // GAP_W * (COLUMNS * GAP_W) + span_w % GAP_W
    return n, z, p, q, patch < N * Z * SPANS_H * SPANS_W


# fmt: off
@triton.jit
def sums_of_patches(
    x, dy, z, first, channel_there,
    N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PADDED: tl.constexpr, WIDE: tl.constexpr,
    GAP_H: tl.constexpr, GAP_W: tl.constexpr, APART_H: tl.constexpr, APART_W: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    SPANS_H: tl.constexpr, SPANS_W: tl.constexpr, STEPS: tl.constexpr, TOGETHER: tl.constexpr, LANES: tl.constexpr,
    MASKED: tl.constexpr, DERIVATIVE: tl.constexpr, WITH_BIAS: tl.constexpr,
    d_first, h_first, v_first, D: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, Y_Z: tl.constexpr,
    STRIDE_D: tl.constexpr, DEEP: tl.constexpr, PADDED_D: tl.constexpr,
):
    # fmt: on
    """For each of INPUTS channels, each tap and each of OUTPUTS: a sum in fp32 over STEPS patches of each lane,
    beginning with ``first``. WITH_BIAS, then for each of OUTPUTS the sum of its gradient."""
    RAGGED_H: tl.constexpr = P % (ROWS * GAP_H) > 0
    RAGGED_W: tl.constexpr = Q % (COLUMNS * GAP_W) > 0
    BOUNDED: tl.constexpr = PADDED or RAGGED_H or RAGGED_W
    EACH: tl.constexpr = S * OUTPUTS * R

    sums = ()
    for _ in tl.static_range(INPUTS * EACH + (OUTPUTS if WITH_BIAS else 0)):
        sums += (tl.zeros((LANES,), tl.float32),)
    for step in tl.range(STEPS):
        n, z_place, p, q, there = place_of(
            first + step * TOGETHER, N, Z, SPANS_H, SPANS_W, GAP_H, GAP_W, ROWS, COLUMNS, WIDE
        )
        there = there & channel_there
        h = p * STRIDE_H + h_first
        v = q * STRIDE_W + v_first
        y_at = n * Y_N + p * Y_P + q * Y_Q
        if Z > 1:
            y_at += z_place * Y_Z
        gradients = _gradients(
            dy + y_at, dy if DERIVATIVE == "none" else z + y_at, p, q, there, P, Q, Y_K, Y_P, Y_Q, GAP_H, GAP_W,
            OUTPUTS, ROWS, COLUMNS, MASKED or BOUNDED, RAGGED_H, RAGGED_W, DERIVATIVE,
        )  # fmt: skip
        x_at = x + (n * X_N + h * X_H + v * X_W)
        real = there
        if DEEP:
            d = z_place * STRIDE_D + d_first
            x_at += d * X_D
            if PADDED_D:
                real = there & (d.to(tl.uint32) < D)
        more = ()
        for i in tl.static_range(INPUTS):
            more += _with_patch(
                sums[i * EACH : (i + 1) * EACH], x_at + i * X_C, h, v, real, gradients, H, W, R, S, X_H, X_W,
                DILATION_H, DILATION_W, APART_H, APART_W, OUTPUTS, ROWS, COLUMNS, MASKED or BOUNDED or PADDED_D,
                BOUNDED,
            )  # fmt: skip
        if WITH_BIAS:
            more += _with_gradients(sums[INPUTS * EACH :], gradients, OUTPUTS, ROWS, COLUMNS)
        sums = more
    return sums


# The same sums pixel by pixel, for numbers that are not finite.

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
    """The sum of one channel for one tap and one output over the same patches. It reads only input that pixels of the
    image need."""
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
