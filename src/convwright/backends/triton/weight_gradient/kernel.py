"""The kernels: a weight gradient as one matrix product whose left matrix is never stored.

Rows are the weight's taps and input channels (t, r, s, c), columns are its output channels k, and the sum runs over
output pixels (n, z, p, q); images have one t and z. Input and gradient are N D H W C, so both matrices are contiguous
across the sum, not along it. Each group of channels is a separate product. The sum is long and the product small, so
the sum is divided into parts, each with its own programs.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import any_of
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.parts.kernel import weight_at
from convwright.backends.triton.tf32 import product_added, tf32


@triton.jit
def _kept(inside, k_inside, TAIL: tl.constexpr):
    """The mask of a tile of the gradient: its pixels, and its channels if some are past the end."""
    return inside & k_inside if TAIL else inside


# fmt: off
@triton.jit
def _sum_over_pixels(
    x_rows, h, v, row_inside, dy, k_first, first,
    N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDED: tl.constexpr, WIDE: tl.constexpr, ROW_TAIL: tl.constexpr, FLAT: tl.constexpr, SPLIT: tl.constexpr,
    PITCH: tl.constexpr, STEPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, d, D: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, Y_Z: tl.constexpr,
    STRIDE_D: tl.constexpr, PADDED_D: tl.constexpr, G: tl.constexpr,
):
    # fmt: on
    """One tile of the matrix product in fp32 over STEPS steps of pixels from ``first`` on.

    ``x_rows`` is the offset that each row reads for the output pixel (0, 0, 0, 0), and (d, h, v) that position in the
    image.
    """
    M: tl.constexpr = N * Z * P * Q
    K_TAIL: tl.constexpr = K % BN != 0
    # In short sums fp32 errs so little that neglecting the product of the low parts would be visible.
    EXACT: tl.constexpr = M <= 32

    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(STEPS):
        m = first + step * BK + tl.arange(0, BK)
        inside = m < M
        n = m // (Z * P * Q)
        p = m // Q % P
        q = m % Q
        if WIDE:
            n = n.to(tl.int64)

        x_pixels = n * X_N + p * (STRIDE_H * X_H) + q * (STRIDE_W * X_W)
        if Z > 1:
            z = m // (P * Q) % Z
            x_pixels += z * (STRIDE_D * X_D)
        x_at = x_rows[:, None] + x_pixels[None, :]
        real = inside[None, :]
        if PADDED:
            # As an unsigned number, a negative position is far beyond the end of the image.
            if FLAT:
                h_read = h[:, None] + (p * STRIDE_H)[None, :]
                v_read = v[:, None] + (q * STRIDE_W)[None, :]
            else:
                h_read = (h + p * STRIDE_H)[None, :]
                v_read = (v + q * STRIDE_W)[None, :]
            real = real & (h_read.to(tl.uint32) < H) & (v_read.to(tl.uint32) < W)
            if PADDED_D:
                d_step = m // (P * Q) % Z * STRIDE_D
                d_read = d[:, None] + d_step[None, :] if FLAT else (d + d_step)[None, :]
                real = real & (d_read.to(tl.uint32) < D)
        if ROW_TAIL:
            real = real & row_inside[:, None]
        x_tile = tl.load(x_at, mask=real, other=0.0)

        y_pixels = n * Y_N + p * Y_P + q * Y_Q
        if Z > 1:
            y_pixels += z * Y_Z
        if PITCH:
            k = k_first + tl.arange(0, BN)
            dy_at = dy + (m[:, None] + (k * PITCH)[None, :])
            there = _kept((m < PITCH)[:, None], (k < K)[None, :], K_TAIL)
            dy_tile = tl.load(dy_at, mask=there, other=0.0)
        elif GROUP:
            # Tensor cores take fp32 only along the sum, so this tile is transposed on its way through registers into
            # shared memory. In one row of it the threads of a warp would have conflicts in two banks; with this load
            # they are in several rows.
            k = k_first + tl.arange(0, BN // GROUP)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
            dy_at = dy + (y_pixels[:, None, None] + k[None, :, :])
            dy_tile = tl.load(dy_at, mask=_kept(inside[:, None, None], (k < K)[None, :, :], K_TAIL), other=0.0)
            dy_tile = tl.reshape(dy_tile, (BK, BN))
        else:
            k = k_first + tl.arange(0, BN)
            dy_at = dy + (y_pixels[:, None] + k[None, :])
            dy_tile = tl.load(dy_at, mask=_kept(inside[:, None], (k < K)[None, :], K_TAIL), other=0.0)

        dy_low = dy_tile
        if SPLIT and PITCH:
            dy_low = tl.load(dy_at + G * K * PITCH, mask=there, other=0.0)
        total = product_added(total, x_tile, dy_tile, dy_low, SPLIT, PITCH > 0, EXACT)
    return total


# fmt: off
@triton.jit
def weight_gradient(
    x, dy, out,
    N: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr, PADDED: tl.constexpr,
    G: tl.constexpr, D: tl.constexpr, T: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, Y_Z: tl.constexpr,
    W_T: tl.constexpr, STRIDE_D: tl.constexpr, FRONT: tl.constexpr, DILATION_D: tl.constexpr,
    WIDE: tl.constexpr, SPLIT: tl.constexpr, PITCH: tl.constexpr, FLAT: tl.constexpr, SUMMED: tl.constexpr,
    PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """out = the gradient, in G groups with C input and K output channels each. If SUMMED, out = the sums of PARTS in
    fp32 as PARTS K T R S C, with the K of all groups.

    X_*, Y_* and W_* are strides; FRONT, TOP and LEFT are padding; SPLIT computes fp32 by three TF32 products; FLAT lets
    a tile span taps; WIDE selects 64-bit offsets; GROUP is the number of neighbours in a row of dy that a few threads
    load. With a PITCH, ``dy`` is packed, and PITCH is the stride of its channels.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    STEPS: tl.constexpr = (N * Z * P * Q + BK * PARTS - 1) // (BK * PARTS)
    TAPS: tl.constexpr = T * R * S
    TILES_C: tl.constexpr = (C + BM - 1) // BM
    TILES_M: tl.constexpr = (TAPS * C + BM - 1) // BM if FLAT else TAPS * TILES_C
    TILES_K: tl.constexpr = (K + BN - 1) // BN
    TILES_N: tl.constexpr = G * TILES_K
    ROW_TAIL: tl.constexpr = (TAPS * C if FLAT else C) % BM != 0
    PADDED_D: tl.constexpr = FRONT > 0 or (Z - 1) * STRIDE_D + (T - 1) * DILATION_D >= D

    # All programs of one part read the same pixels, which stay in the cache.
    program = tl.program_id(0)
    part = program // (TILES_M * TILES_N)
    tile_m = program // TILES_N % TILES_M
    k_first = program % TILES_N * BN
    k_group = 0  # the first channel of the group
    if G > 1:
        k_first = program % TILES_K * BN
        g = program % TILES_N // TILES_K
        k_group = g * K
        x += g * C
        dy += k_group * (PITCH if PITCH else 1)

    if FLAT:
        row = tile_m * BM + tl.arange(0, BM)
        tap = row // C
        c = row % C
        row_inside = row < TAPS * C
    else:
        tap = tile_m // TILES_C
        c = tile_m % TILES_C * BM + tl.arange(0, BM)
        row_inside = c < C
    h = (tap // S % R if T > 1 else tap // S) * DILATION_H - TOP
    v = tap % S * DILATION_W - LEFT
    x_rows = x + (h * X_H + v * X_W + c)
    d = tap // (R * S) * DILATION_D - FRONT
    if T > 1 or FRONT > 0:
        x_rows += d * X_D
    first = part * (STEPS * BK)

    total = _sum_over_pixels(
        x_rows, h, v, row_inside, dy, k_first, first, N, H, W, K, P, Q, X_N, X_H, X_W, Y_N, Y_P, Y_Q,
        STRIDE_H, STRIDE_W, PADDED, WIDE, ROW_TAIL, FLAT, SPLIT, PITCH, STEPS, BM, BN, BK, GROUP,
        d, D, Z, X_D, Y_Z, STRIDE_D, PADDED_D, G,
    )  # fmt: skip
    if SPLIT:
        # An infinity has no two parts, so it becomes NaN here. Such tiles are rare; the right outputs come from one
        # product of the unsplit numbers.
        lost = total != total
        if any_of(lost):
            whole = _sum_over_pixels(
                x_rows, h, v, row_inside, dy, k_first, first, N, H, W, K, P, Q, X_N, X_H, X_W, Y_N, Y_P, Y_Q,
                STRIDE_H, STRIDE_W, PADDED, WIDE, ROW_TAIL, FLAT, False, PITCH, STEPS, BM, BN, BK, GROUP,
                d, D, Z, X_D, Y_Z, STRIDE_D, PADDED_D, G,
            )  # fmt: skip
            total = tl.where(lost, whole, total)

    k = k_first + tl.arange(0, BN)
    kept = row_inside[:, None] & (k < K)[None, :]
    if G > 1:
        k += k_group
    if SUMMED:
        sums = out + part.to(tl.int64) * (G * K * TAPS * C)
        tl.store(sums + ((tap * C + c)[:, None] + (k * (TAPS * C))[None, :]), total, mask=kept)
    else:
        rows = weight_at(0, tap, c, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
        tl.store(out + (rows[:, None] + (k * W_K)[None, :]), total.to(out.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def packed_gradient(
    dy, packed, N: tl.constexpr, K: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr, WIDE: tl.constexpr,
    PITCH: tl.constexpr, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """packed = dy rounded to TF32, as K PITCH, and after it the remainder; pixels past the last are zeros."""
    wait_for_the_kernel_ahead(OVERLAPS)
    TILES: tl.constexpr = PITCH // PIXELS
    m = tl.program_id(0) % TILES * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(0) // TILES * CHANNELS + tl.arange(0, CHANNELS)
    n = m // (Z * P * Q)
    if WIDE:
        n = n.to(tl.int64)
    y_pixels = n * Y_N + m // Q % P * Y_P + m % Q * Y_Q
    if Z > 1:
        y_pixels += m // (P * Q) % Z * Y_Z
    dy_at = dy + (y_pixels[:, None] + k[None, :])
    value = tl.load(dy_at, mask=(m < N * Z * P * Q)[:, None] & (k < K)[None, :], other=0.0)
    high = tf32(value)
    kept = (k < K)[None, :]
    at = packed + (m[:, None] + (k * PITCH)[None, :])
    tl.store(at, high, mask=kept)
    tl.store(at + K * PITCH, value - high, mask=kept)
