"""What a thread sums up: some rows of the output, over all channels and taps."""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import derived
from convwright.backends.triton.loading import loaded


@triton.jit
def _tap(w, r, s, W_R: tl.constexpr, W_S: tl.constexpr, R: tl.constexpr, S: tl.constexpr, FLIP: tl.constexpr):
    """A weight's place for one of the taps in the order in which they read."""
    return w + ((R - 1 - r if FLIP else r) * W_R + (S - 1 - s if FLIP else s) * W_S)


# fmt: off
@triton.jit
def _added(
    sums, value, taps, OUTPUTS: tl.constexpr, R: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr,
    READ: tl.constexpr,
):
    # fmt: on
    """The sums with what was read of row READ, and ``taps`` is what that column's taps weigh, (r, k)."""
    more = ()
    for row in tl.static_range(ROWS):
        for k in tl.static_range(OUTPUTS):
            if row * APART <= READ and row * APART + R > READ:
                more += (sums[row * OUTPUTS + k] + value * taps[(READ - row * APART) * OUTPUTS + k],)
            else:
                more += (sums[row * OUTPUTS + k],)
    return more


# fmt: off
@triton.jit
def _with_column(
    sums, at, z_at, w, k_first, there, h, v, s,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_H: tl.constexpr, X_W: tl.constexpr, W_K: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, MASKED: tl.constexpr, RAGGED: tl.constexpr,
    OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """The sums with one column of taps of one more input channel, or of one plane of it, where it is ``there``, which
    RAGGED says need not be so on every lane. ``at`` is where its first row's first tap reads, ``w`` are its weights."""
    taps = ()
    for r in tl.static_range(R):
        tap = _tap(w, r, s, W_R, W_S, R, S, FLIP)
        for out in tl.static_range(OUTPUTS):
            # Beyond the last channel that one is read again.
            k = tl.minimum(k_first + out, K - 1) if K % OUTPUTS else k_first + out
            weight = tl.load(tap + k * W_K, mask=there, other=0.0) if RAGGED else tl.load(tap + k * W_K)
            taps += (weight.to(tl.float32),)
    v_read = v + s * DILATION_W
    for row in tl.static_range((ROWS - 1) * APART + R):
        behind = row * DILATION_H * X_H + s * DILATION_W * X_W
        real = there
        if MASKED:
            h_read = h + row * DILATION_H
            real = (h_read >= 0) & (h_read < H) & (v_read >= 0) & (v_read < W) & there
        value = loaded(at + behind, real, MASKED or RAGGED)
        if DERIVATIVE != "none":
            value = derived(value, loaded(z_at + behind, real, MASKED or RAGGED), DERIVATIVE)
        sums = _added(sums, value, taps, OUTPUTS, R, APART, ROWS, row)
    return sums


# fmt: off
@triton.jit
def _over_channels(
    sums, at, z_at, w, k_first, group, d, h, v, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, MASKED: tl.constexpr, PADDED_D: tl.constexpr,
    LARGE: tl.constexpr, OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """The sums with all input channels. (d, h, v) is where the first row's first tap reads, and ``at`` that place in
    the first channel."""
    for step in tl.range((C + SPLIT - 1) // SPLIT * T):
        c = (step // T if T > 1 else step) * SPLIT + group
        plane = c * X_C
        w_plane = w + c * W_C
        there = c < C
        if T > 1:
            t = step % T
            plane += t * (DILATION_D * X_D)
            w_plane += (T - 1 - t if FLIP else t) * W_T
        if PADDED_D and MASKED:
            d_read = d + step % T * DILATION_D
            there = there & (d_read >= 0) & (d_read < D)
        if LARGE:
            for s in tl.range(S):
                sums = _with_column(
                    sums, at + plane, z_at + plane, w_plane, k_first, there, h, v, s, H, W, K, R, S, X_H, X_W,
                    W_K, W_R, W_S, DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, C % SPLIT > 0, OUTPUTS,
                    DERIVATIVE,
                )  # fmt: skip
        else:
            for s in tl.static_range(S):
                sums = _with_column(
                    sums, at + plane, z_at + plane, w_plane, k_first, there, h, v, s, H, W, K, R, S, X_H, X_W,
                    W_K, W_R, W_S, DILATION_H, DILATION_W, FLIP, APART, ROWS, MASKED, C % SPLIT > 0, OUTPUTS,
                    DERIVATIVE,
                )  # fmt: skip
    return sums


# fmt: off
@triton.jit
def sums_of_rows(
    x, z, w, k_first, group, n, g, plane, p, q, first_q, last_q, A: tl.constexpr, B: tl.constexpr, E: tl.constexpr,
    PHASES_D: tl.constexpr, PHASES_H: tl.constexpr, PHASES_W: tl.constexpr,
    C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr,
    DEPTH: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, LANES: tl.constexpr,
    LARGE: tl.constexpr, OUTPUTS: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """For phases A, B and E of the three dimensions and for each of ROWS rows, each of OUTPUTS channels: sums in fp32
    over every SPLIT-th input channel, of which ``group`` is the first."""
    T: tl.constexpr = PHASES_D[A][0]
    R: tl.constexpr = PHASES_H[B][0]
    S: tl.constexpr = PHASES_W[E][0]
    FRONT: tl.constexpr = PHASES_D[A][1]
    TOP: tl.constexpr = PHASES_H[B][1]
    LEFT: tl.constexpr = PHASES_W[E][1]
    LAST: tl.constexpr = (ROWS - 1) * APART + R - 1  # of the rows that are read
    LAST_D: tl.constexpr = (T - 1) * DILATION_D
    PADDED_D: tl.constexpr = FRONT > 0 or (DEPTH - 1) * STRIDE_D - FRONT + LAST_D >= D

    sums = ()
    for _ in tl.static_range(ROWS * OUTPUTS):
        sums += (tl.zeros((LANES,), tl.float32),)
    if T * R * S > 0:
        d = plane * STRIDE_D - FRONT
        h = p * STRIDE_H - TOP
        v = q * STRIDE_W - LEFT
        w += PHASES_D[A][2] + PHASES_H[B][2] + PHASES_W[E][2]
        at = (n * X_N + h * X_H) + (g * (C * X_C) + v * X_W)
        if DEPTH > 1 or FRONT != 0:
            at += d * X_D
        z_at = x + at if DERIVATIVE == "none" else z + at
        first_v = first_q * STRIDE_W - LEFT
        last_v = last_q * STRIDE_W - LEFT + (S - 1) * DILATION_W
        inside = (h >= 0) & (h + LAST * DILATION_H < H) & (first_v >= 0) & (last_v < W)
        if PADDED_D:
            inside = inside & (d >= 0) & (d + LAST_D < D)
        if inside:
            sums = _over_channels(
                sums, x + at, z_at, w, k_first, group, d, h, v, T, R, S, C, D, H, W, K, X_C, X_D, X_H, X_W,
                W_K, W_C, W_T, W_R, W_S, DILATION_D, DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, False, PADDED_D,
                LARGE, OUTPUTS, DERIVATIVE,
            )  # fmt: skip
        else:
            sums = _over_channels(
                sums, x + at, z_at, w, k_first, group, d, h, v, T, R, S, C, D, H, W, K, X_C, X_D, X_H, X_W,
                W_K, W_C, W_T, W_R, W_S, DILATION_D, DILATION_H, DILATION_W, FLIP, APART, ROWS, SPLIT, True, PADDED_D,
                LARGE, OUTPUTS, DERIVATIVE,
            )  # fmt: skip
    return sums
