"""The kernel: an input gradient as one matrix product per phase, whose left matrix is never stored.

Windows are strides apart, so a tap reaches only input pixels whose positions have one remainder modulo the strides.
Pixels with equal remainders form a phase: the same taps reach them, and adjacent pixels of a phase are reached from
adjacent positions of dy. Rows are the pixels of a phase, columns are input channels c, and the sum runs over the
phase's taps and output channels (t, r, s, k); images have one t. The weight is C T R S K, contiguous along the sum, or
K T R S C. Each group of channels is a separate product.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import any_of, outer
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.tf32 import product_added


@triton.jit
def _share(first, SIZE: tl.constexpr, STRIDE: tl.constexpr):
    """The number of positions below SIZE at multiples of STRIDE from ``first`` on."""
    if SIZE % STRIDE == 0:
        return SIZE // STRIDE
    return (SIZE - first + STRIDE - 1) // STRIDE


@triton.jit
def _divided(value, share, SIZE: tl.constexpr, STRIDE: tl.constexpr):
    """Quotient and remainder by a share of SIZE, which is one of two constants, so no division is needed."""
    if SIZE % STRIDE == 0:
        return value // (SIZE // STRIDE), value % (SIZE // STRIDE)
    MOST: tl.constexpr = SIZE // STRIDE + 1
    LEAST: tl.constexpr = SIZE // STRIDE if SIZE >= STRIDE else 1
    quotient = tl.where(share == MOST, value // MOST, value // LEAST)
    return quotient, value - quotient * share


@triton.jit
def _first(tap, STRIDE: tl.constexpr, BEFORE: tl.constexpr, DILATION: tl.constexpr):
    """The first position that ``tap`` reaches, with BEFORE of padding."""
    return (tap * DILATION + STRIDE - BEFORE % STRIDE) % STRIDE


# fmt: off
@triton.jit
def _pixel(
    m, rows_d, rows_h, rows_w, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, WIDE: tl.constexpr,
):
    # fmt: on
    """The position of the ``m``-th pixel of a phase."""
    line, v = _divided(m, rows_w, W, STRIDE_W)
    plane, h = _divided(line, rows_h, H, STRIDE_H)
    n, d = _divided(plane, rows_d, D, STRIDE_D)
    if WIDE:
        n = n.to(tl.int64)
    return n, d, h, v


# fmt: off
@triton.jit
def _sum_over_taps(
    dy, dy_rows, w_columns, z, p, q, first_tap, taps_h, taps_w, depth,
    K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    W_K: tl.constexpr, W_TAP: tl.constexpr, W_SIZE: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FLIP: tl.constexpr, PADDED: tl.constexpr, SPLIT: tl.constexpr, PACKED: tl.constexpr, FLAT: tl.constexpr,
    Y_PLANES: tl.constexpr, DEEP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    # fmt: on
    """One tile of a phase's product in fp32, a sum of ``depth`` products; each row's first tap reads (z, p, q)."""
    BLOCKS_K: tl.constexpr = (K + BK - 1) // BK
    TAIL: tl.constexpr = K % BK != 0  # always true if a step spans taps
    # In short sums fp32 errs so little that neglecting the product of the low parts would be visible.
    LEAST_D: tl.constexpr = T // STRIDE_D if T >= STRIDE_D else 1
    LEAST_H: tl.constexpr = R // STRIDE_H if R >= STRIDE_H else 1
    LEAST_W: tl.constexpr = S // STRIDE_W if S >= STRIDE_W else 1
    EXACT: tl.constexpr = LEAST_D * LEAST_H * LEAST_W * K <= 32

    total = tl.zeros((BM, BN), tl.float32)
    steps = (depth + BK - 1) // BK if FLAT else depth // K * BLOCKS_K
    for step in tl.range(steps):
        if FLAT:
            place = step * BK + tl.arange(0, BK)
            tap = place // K
            k = place % K
            inside = place < depth
        else:
            tap = step // BLOCKS_K
            k = step % BLOCKS_K * BK + tl.arange(0, BK)
            inside = k < K
        i, j = _divided(tap, taps_w, S, STRIDE_W)
        dy_step = k * Y_K
        behind = j * STRIDE_W
        if T > 1:
            e, i = _divided(i, taps_h, R, STRIDE_H)
            behind += e * (STRIDE_D * R * S)
            dy_step -= e * (DILATION_D * Y_Z)
        behind += i * (STRIDE_H * S)
        lying = first_tap - behind if FLIP else first_tap + behind
        dy_at = outer(dy_rows, dy_step - (i * (DILATION_H * Y_P) + j * (DILATION_W * Y_Q)), Y_PLANES)
        if PACKED:
            dy_at = dy + dy_at
        w_at = w_columns[None, :] + (lying * W_TAP + k * W_K)[:, None]

        if PADDED:
            # As an unsigned number, a negative position is far beyond the end of dy.
            if FLAT:
                p_read = outer(p, -i * DILATION_H, Y_PLANES)
                q_read = outer(q, -j * DILATION_W, Y_PLANES)
            else:
                p_read = tl.expand_dims(p - i * DILATION_H, 0 if Y_PLANES else 1)
                q_read = tl.expand_dims(q - j * DILATION_W, 0 if Y_PLANES else 1)
            real = (p_read.to(tl.uint32) < P) & (q_read.to(tl.uint32) < Q)
            if T > 1:
                if FLAT:
                    z_read = outer(z, -e * DILATION_D, Y_PLANES)
                else:
                    z_read = tl.expand_dims(z - e * DILATION_D, 0 if Y_PLANES else 1)
                real = real & (z_read.to(tl.uint32) < Z)
            elif DEEP:
                real = real & (tl.expand_dims(z, 0 if Y_PLANES else 1).to(tl.uint32) < Z)
            if TAIL:
                real = real & tl.expand_dims(inside, 1 if Y_PLANES else 0)
            dy_tile = tl.load(dy_at, mask=real, other=0.0)
        elif TAIL:
            dy_tile = tl.load(dy_at, mask=tl.expand_dims(inside, 1 if Y_PLANES else 0), other=0.0)
        else:
            dy_tile = tl.load(dy_at)
        if Y_PLANES:
            dy_tile = tl.trans(dy_tile)
        w_tile = tl.load(w_at, mask=inside[:, None], other=0.0) if TAIL else tl.load(w_at)
        w_low = w_tile
        if SPLIT and PACKED:
            low_at = w_at + W_SIZE
            w_low = tl.load(low_at, mask=inside[:, None], other=0.0) if TAIL else tl.load(low_at)
        total = product_added(total, dy_tile, w_tile, w_low, SPLIT, PACKED, EXACT)
    return total


# fmt: off
@triton.jit
def input_gradient(
    dy, w, dx,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    X_PLANES: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    Y_PLANES: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_TAP: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FLIP: tl.constexpr, PADDED: tl.constexpr,
    SPLIT: tl.constexpr, PACKED: tl.constexpr, FLAT: tl.constexpr, WIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, PHASES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """dx = the gradient of conv(x, w) with respect to x, where dy is the gradient of the output, in G groups with C
    input and K output channels each.

    X_*, Y_* and W_* are strides, *_PLANES: the operand is NCHW; FRONT, TOP and LEFT are padding; PADDED: taps reach
    beyond dy; SPLIT computes fp32 by three TF32 products; PACKED: the weight is rounded to TF32, and with SPLIT the
    remainder follows it; FLAT lets a step of the sum span taps; WIDE selects 64-bit offsets. PHASES has the first
    program and the first tap of each phase.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    TILES_C: tl.constexpr = (C + BN - 1) // BN
    TILES_N: tl.constexpr = G * TILES_C
    DEEP: tl.constexpr = D > 1 or T > 1 or Z > 1

    program = tl.program_id(0)
    begun = 0
    t = 0
    r = 0
    s = 0
    for place in tl.static_range(len(PHASES)):
        reached = program >= PHASES[place][0]
        begun = tl.where(reached, PHASES[place][0], begun)
        t = tl.where(reached, PHASES[place][1], t)
        r = tl.where(reached, PHASES[place][2], r)
        s = tl.where(reached, PHASES[place][3], s)
    program -= begun

    # Position of the phase's first pixel, number of positions, number of taps.
    d_first = _first(t, STRIDE_D, FRONT, DILATION_D)
    h_first = _first(r, STRIDE_H, TOP, DILATION_H)
    v_first = _first(s, STRIDE_W, LEFT, DILATION_W)
    rows_d = _share(d_first, D, STRIDE_D)
    rows_h = _share(h_first, H, STRIDE_H)
    rows_w = _share(v_first, W, STRIDE_W)
    taps_h = _share(r, R, STRIDE_H)
    taps_w = _share(s, S, STRIDE_W)
    M = N * rows_d * rows_h * rows_w
    tiles_m = (M + BM - 1) // BM

    # Neighbouring programs share GROUP_M row tiles, whose part of dy stays in the cache.
    group = program // (GROUP_M * TILES_N)
    within = program % (GROUP_M * TILES_N)
    rows = min(tiles_m - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % rows) * BM + tl.arange(0, BM)
    tile_n = within // rows
    if G > 1:
        g = tile_n // TILES_C
        tile_n = tile_n % TILES_C
        dy += g * (K * Y_K)
        w += g * (C * T * R * S * K)
        dx += g * (C * X_C)
    c = tile_n * BN + tl.arange(0, BN)

    # Rows and columns past the end read the last one again, which is cheaper than masking every load.
    m_read = tl.minimum(m, M - 1)
    c_read = tl.minimum(c, C - 1) if C % BN else c
    n, d, h, v = _pixel(m_read, rows_d, rows_h, rows_w, D, H, W, STRIDE_D, STRIDE_H, STRIDE_W, WIDE)
    z = d + (d_first + FRONT - t * DILATION_D) // STRIDE_D
    p = h + (h_first + TOP - r * DILATION_H) // STRIDE_H
    q = v + (v_first + LEFT - s * DILATION_W) // STRIDE_W
    dy_rows = n * Y_N + p * Y_P + q * Y_Q
    if DEEP:
        dy_rows += z * Y_Z
    if not PACKED:  # otherwise both parts of the weight need the registers of 64-bit addresses
        dy_rows = dy + dy_rows
    w_columns = w + c_read * W_C
    tap = (t * R + r) * S + s
    first_tap = T * R * S - 1 - tap if FLIP else tap
    depth = _share(t, T, STRIDE_D) * taps_h * taps_w * K

    total = _sum_over_taps(
        dy, dy_rows, w_columns, z, p, q, first_tap, taps_h, taps_w, depth, K, T, R, S, Z, P, Q, Y_K, Y_Z, Y_P, Y_Q,
        W_K, W_TAP, G * C * T * R * S * K, STRIDE_D, STRIDE_H, STRIDE_W, DILATION_D, DILATION_H, DILATION_W,
        FLIP, PADDED, SPLIT, PACKED, FLAT, Y_PLANES, DEEP, BM, BN, BK,
    )  # fmt: skip
    if SPLIT:
        # An infinity has no two parts, so it becomes NaN here. Such tiles are rare; the right outputs come from one
        # product of the unsplit numbers.
        lost = total != total
        if any_of(lost):
            whole = _sum_over_taps(
                dy, dy_rows, w_columns, z, p, q, first_tap, taps_h, taps_w, depth, K, T, R, S, Z, P, Q, Y_K, Y_Z, Y_P,
                Y_Q, W_K, W_TAP, G * C * T * R * S * K, STRIDE_D, STRIDE_H, STRIDE_W, DILATION_D, DILATION_H,
                DILATION_W, FLIP, PADDED, False, PACKED, FLAT, Y_PLANES, DEEP, BM, BN, BK,
            )  # fmt: skip
            total = tl.where(lost, whole, total)

    n, d, h, v = _pixel(m, rows_d, rows_h, rows_w, D, H, W, STRIDE_D, STRIDE_H, STRIDE_W, WIDE)
    x_rows = n * X_N + (h_first + h * STRIDE_H) * X_H + (v_first + v * STRIDE_W) * X_W
    if DEEP:
        x_rows += (d_first + d * STRIDE_D) * X_D
    at = outer(x_rows, c * X_C, X_PLANES)
    kept = tl.expand_dims(m < M, 0 if X_PLANES else 1) & tl.expand_dims(c < C, 1 if X_PLANES else 0)
    total = total.to(dx.dtype.element_ty)
    tl.store(dx + at, tl.trans(total) if X_PLANES else total, mask=kept)
