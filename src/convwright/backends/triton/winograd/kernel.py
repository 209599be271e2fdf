"""The kernels: Winograd's convolution F(2x2, 3x3), Y = A' [(G g G') * (B' d B)] A, as 16 matrix products in one.

The output is divided into patches of 2x2 pixels, each of which reads 4x4 pixels of the input. The first kernel
transforms these into 16 points, stored as 16 T C for T patches, padded with zeros to PITCH channels. In the second
kernel a program computes, for some patches and output channels, the 16 products over the input channels, one point
after another, and adds each to the pixels of its patches to which it contributes. The weight is transformed beforehand,
as 16 K C.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated
from convwright.backends.triton.gemm.kernel import outer
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.tf32 import product_added


@triton.jit
def _differences(first, second, third, fourth):
    """B' times a column of four."""
    return first - third, second + third, third - second, second - fourth


@triton.jit
def _place(t, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr):
    """The image of a patch, and its first output pixel."""
    n = t // (ROWS * COLUMNS)
    if WIDE:
        n = n.to(tl.int64)
    return n, t // COLUMNS % ROWS * 2, t % COLUMNS * 2


# fmt: off
@triton.jit
def _row_of_points(
    x_at, h, v, there, H: tl.constexpr, W: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, ROW: tl.constexpr,
):
    # fmt: on
    """One of the four rows of pixels that patches read, transformed along the row."""
    h_there = there & (h + ROW >= 0) & (h + ROW < H)
    first = tl.load(x_at + ROW * X_H, mask=h_there & (v >= 0) & (v < W), other=0.0)
    second = tl.load(x_at + (ROW * X_H + X_W), mask=h_there & (v + 1 >= 0) & (v + 1 < W), other=0.0)
    third = tl.load(x_at + (ROW * X_H + 2 * X_W), mask=h_there & (v + 2 >= 0) & (v + 2 < W), other=0.0)
    fourth = tl.load(x_at + (ROW * X_H + 3 * X_W), mask=h_there & (v + 3 >= 0) & (v + 3 < W), other=0.0)
    return _differences(first, second, third, fourth)


# fmt: off
@triton.jit
def transformed_input(
    x, points,
    N: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, X_PLANES: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, WIDE: tl.constexpr, PITCH: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """points = B' d B for each patch d of x, as 16 T PITCH. A program transforms BT patches of BC channels.

    If x is NCHW, it is read along the patches, and the result is transposed.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    T: tl.constexpr = N * ROWS * COLUMNS
    TILES_C: tl.constexpr = (PITCH + BC - 1) // BC
    t = tl.program_id(0) // TILES_C * BT + tl.arange(0, BT)
    c = tl.program_id(0) % TILES_C * BC + tl.arange(0, BC)
    n, p, q = _place(tl.minimum(t, T - 1), ROWS, COLUMNS, WIDE)
    x_at = x + outer(n * X_N + (p - TOP) * X_H + (q - LEFT) * X_W, c * X_C, X_PLANES)
    h = tl.expand_dims(p - TOP, 0 if X_PLANES else 1)
    v = tl.expand_dims(q - LEFT, 0 if X_PLANES else 1)
    there = tl.expand_dims(c < C, 1 if X_PLANES else 0)

    first = _row_of_points(x_at, h, v, there, H, W, X_H, X_W, 0)
    second = _row_of_points(x_at, h, v, there, H, W, X_H, X_W, 1)
    third = _row_of_points(x_at, h, v, there, H, W, X_H, X_W, 2)
    fourth = _row_of_points(x_at, h, v, there, H, W, X_H, X_W, 3)

    at = points + (t * PITCH)[:, None] + c[None, :]
    kept = (t < T)[:, None] & (c < PITCH)[None, :]
    for j in tl.static_range(4):
        column = _differences(first[j], second[j], third[j], fourth[j])
        for i in tl.static_range(4):
            value = tl.trans(column[i]) if X_PLANES else column[i]
            tl.store(at + (4 * i + j) * (T * PITCH), value, mask=kept)


# fmt: off
@triton.jit
def _sums_of_points(
    point_rows, u_columns, T: tl.constexpr, K: tl.constexpr, PITCH: tl.constexpr, PACKED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    # fmt: on
    """The four pixels of each patch in fp32."""
    BLOCKS_C: tl.constexpr = (PITCH + BK - 1) // BK
    TAIL: tl.constexpr = PITCH % BK != 0

    y00 = tl.zeros((BM, BN), tl.float32)
    y01 = tl.zeros((BM, BN), tl.float32)
    y10 = tl.zeros((BM, BN), tl.float32)
    y11 = tl.zeros((BM, BN), tl.float32)
    total = tl.zeros((BM, BN), tl.float32)
    # One loop over points and channels, so that loads of the next point are in flight early.
    for step in tl.range(16 * BLOCKS_C):
        point = step // BLOCKS_C
        c = step % BLOCKS_C * BK + tl.arange(0, BK)
        points_at = point_rows[:, None] + (point * (T * PITCH) + c)[None, :]
        u_at = u_columns[None, :] + (point * (K * PITCH) + c)[:, None]
        left = tl.load(points_at, mask=(c < PITCH)[None, :], other=0.0) if TAIL else tl.load(points_at)
        right = tl.load(u_at, mask=(c < PITCH)[:, None], other=0.0) if TAIL else tl.load(u_at)
        low = right
        if PACKED:
            low_at = u_at + 16 * K * PITCH
            low = tl.load(low_at, mask=(c < PITCH)[:, None], other=0.0) if TAIL else tl.load(low_at)
        total = product_added(total, left, right, low, True, PACKED, False)
        if step % BLOCKS_C == BLOCKS_C - 1:
            # Row and column of A' for this point.
            upper = tl.where(point < 12, 1.0, 0.0)
            lower = tl.where(point < 4, 0.0, tl.where(point < 8, 1.0, -1.0))
            before = tl.where(point % 4 < 3, 1.0, 0.0)
            behind = tl.where(point % 4 == 0, 0.0, tl.where(point % 4 == 1, 1.0, -1.0))
            y00 += upper * before * total
            y01 += upper * behind * total
            y10 += lower * before * total
            y11 += lower * behind * total
            total = tl.zeros((BM, BN), tl.float32)
    return y00, y01, y10, y11


# fmt: off
@triton.jit
def _sums_of_taps(
    x, w_columns, n, h, v,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):
    # fmt: on
    """The pixels whose first tap reads at (h, v), in fp32, by the definition of a convolution."""
    total = tl.zeros((BM, BN), tl.float32)
    for tap in tl.range(9):
        h_read = h + tap // 3
        v_read = v + tap % 3
        real = (h_read >= 0) & (h_read < H) & (v_read >= 0) & (v_read < W)
        x_rows = x + (n * X_N + h_read * X_H + v_read * X_W)
        of_tap = tl.zeros((BM, BN), tl.float32)
        for c in tl.range(C, loop_unroll_factor=4):
            left = tl.load(x_rows + c * X_C, mask=real, other=0.0)
            of_tap += left[:, None] * tl.load(w_columns + (tap * C + c) * K)[None, :]
        total += of_tap
    return total


# fmt: off
@triton.jit
def _write(
    total, n, p, q, there, k, bias, residual, y,
    K: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr, Y_PLANES: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
):
    # fmt: on
    """y = activation(total + residual + bias) at the pixels (n, p, q) inside the image, and channels k."""
    at = outer(n * Y_N + p * Y_P + q * Y_Q, k * Y_K, Y_PLANES)
    real = there & (p < P) & (q < Q)
    kept = tl.expand_dims(real, 0 if Y_PLANES else 1) & tl.expand_dims(k < K, 1 if Y_PLANES else 0)
    if Y_PLANES:
        total = tl.trans(total)
    if RESIDUAL:
        total += tl.load(residual + at, mask=kept, other=0.0)
    if BIAS:
        total += tl.expand_dims(tl.load(bias + k, mask=k < K, other=0.0), 1 if Y_PLANES else 0)
    tl.store(y + at, activated(total, ACTIVATION, y.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def winograd(
    points, w, x, bias, residual, y,
    N: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    P: tl.constexpr, Q: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr, Y_PLANES: tl.constexpr,
    TOP: tl.constexpr, LEFT: tl.constexpr, WIDE: tl.constexpr, PITCH: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, PACKED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), by 3xTF32 from the transformed input ``points``.

    ``w`` is the transformed weight, 16 K PITCH; if PACKED, rounded to TF32 with the remainder after it; then the weight
    itself, 9 C K.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    T: tl.constexpr = N * ROWS * COLUMNS
    TILES_M: tl.constexpr = (T + BM - 1) // BM
    TILES_N: tl.constexpr = (K + BN - 1) // BN

    # Neighbouring programs share GROUP_M row tiles, whose points stay in the cache.
    program = tl.program_id(0)
    group = program // (GROUP_M * TILES_N)
    within = program % (GROUP_M * TILES_N)
    rows = min(TILES_M - group * GROUP_M, GROUP_M)
    t = (group * GROUP_M + within % rows) * BM + tl.arange(0, BM)
    k_first = within // rows * BN
    k = k_first + tl.arange(0, BN)
    # Rows and columns past the end read the last one again, which is cheaper than masking every load.
    t_read = tl.minimum(t, T - 1)
    k_read = tl.minimum(k, K - 1) if K % BN else k

    pixels = _sums_of_points(points + t_read * PITCH, w + k_read * PITCH, T, K, PITCH, PACKED, BM, BN, BK)
    n, p, q = _place(t_read, ROWS, COLUMNS, WIDE)

    # The transforms spread numbers that are not finite over a patch, and may overflow where the definition does not.
    # Such tiles are rare and are computed by the definition, a few channels at a time: more would take registers from
    # the frequent tiles.
    lost = 0.0 * pixels[0] + 0.0 * pixels[1] + 0.0 * pixels[2] + 0.0 * pixels[3] != 0.0
    if tl.max(tl.max(lost.to(tl.int32), axis=1), axis=0) > 0:
        FEW: tl.constexpr = 16
        weight = w + (2 if PACKED else 1) * (16 * K * PITCH)
        for turn in tl.range(4 * (BN // FEW)):
            pixel = turn // (BN // FEW)
            p_here = p + pixel // 2
            q_here = q + pixel % 2
            k_here = k_first + turn % (BN // FEW) * FEW + tl.arange(0, FEW)
            total = _sums_of_taps(
                x, weight + tl.minimum(k_here, K - 1), n, p_here - TOP, q_here - LEFT,
                C, H, W, K, X_N, X_C, X_H, X_W, BM, FEW,
            )  # fmt: skip
            _write(
                total, n, p_here, q_here, t < T, k_here, bias, residual, y, K, P, Q, Y_N, Y_K, Y_P, Y_Q, Y_PLANES,
                BIAS, RESIDUAL, ACTIVATION,
            )  # fmt: skip
    else:
        for pixel in tl.static_range(4):
            _write(
                pixels[pixel], n, p + pixel // 2, q + pixel % 2, t < T, k, bias, residual, y, K, P, Q,
                Y_N, Y_K, Y_P, Y_Q, Y_PLANES, BIAS, RESIDUAL, ACTIVATION,
            )  # fmt: skip
