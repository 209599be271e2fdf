"""The kernel of `backends/triton/implicit_gemm`, whole sums alone, with its sizes and strides as numbers at run time.

Flags hold what the sizes decide at compile time: TAIL, EXACT, DEEP, PADDED_D, GROUPED, K_FITS and
ODD_ROWS. A step of the sum knows its tap by counting channels up, not by a division.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from common.runtime_sizes.dividing import divided

from convwright.backends.triton.activation import activated
from convwright.backends.triton.gemm.kernel import any_of, outer, step_added, stored_as
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.tf32 import product_added


# fmt: off
@triton.jit
def _sum_over_taps(
    x_rows, w_columns, h, v, d, C, H, W, D, X_C, X_D, X_H, X_W, C_TIMES, C_SHIFT,
    R: tl.constexpr, S: tl.constexpr, T: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FLIP: tl.constexpr, PADDED: tl.constexpr, PADDED_D: tl.constexpr, SPLIT: tl.constexpr, FLAT: tl.constexpr,
    X_PLANES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    APART: tl.constexpr, WHOLE: tl.constexpr, TAIL: tl.constexpr, EXACT: tl.constexpr, C_RUN: tl.constexpr,
):
    # fmt: on
    """One tile of the matrix product; (d, h, v) is where each row's first tap reads."""
    TAPS: tl.constexpr = T * R * S
    COUNTED: tl.constexpr = not FLAT and TAPS > 1
    steps = (TAPS * C + BK - 1) // BK if FLAT else (C + BK - 1) // BK * TAPS

    total = tl.zeros((BM, BN), tl.int32 if WHOLE else tl.float32)
    tap = 0
    first = 0
    for step in tl.range(steps):
        if FLAT:
            depth = step * BK + tl.arange(0, BK)
            at_tap, c = divided(depth, C, C_TIMES, C_SHIFT, C_RUN)
            inside = depth < TAPS * C
        else:
            at_tap = tap
            c = (first if COUNTED else step * BK) + tl.arange(0, BK)
            inside = c < C
        h_tap = (at_tap // S % R if T > 1 else at_tap // S) * DILATION_H
        v_tap = at_tap % S * DILATION_W
        x_step = h_tap * X_H + v_tap * X_W + c * X_C
        if T > 1:
            x_step += at_tap // (R * S) * (DILATION_D * X_D)
        x_at = outer(x_rows, x_step, X_PLANES)
        w_at = w_columns[None, :] + ((TAPS - 1 - at_tap if FLIP else at_tap) * C + c)[:, None]

        if PADDED:
            if FLAT:
                h_read = outer(h, h_tap, X_PLANES)
                v_read = outer(v, v_tap, X_PLANES)
            else:
                h_read = tl.expand_dims(h + h_tap, 0 if X_PLANES else 1)
                v_read = tl.expand_dims(v + v_tap, 0 if X_PLANES else 1)
            real = (h_read >= 0) & (h_read < H) & (v_read >= 0) & (v_read < W)
            if PADDED_D:
                d_tap = at_tap // (R * S) * DILATION_D
                d_read = outer(d, d_tap, X_PLANES) if FLAT else tl.expand_dims(d + d_tap, 0 if X_PLANES else 1)
                real = real & (d_read >= 0) & (d_read < D)
            if TAIL:
                real = real & tl.expand_dims(inside, 1 if X_PLANES else 0)
            x_tile = tl.load(x_at, mask=real, other=0.0)
        elif TAIL:
            x_tile = tl.load(x_at, mask=tl.expand_dims(inside, 1 if X_PLANES else 0), other=0.0)
        else:
            x_tile = tl.load(x_at)
        if X_PLANES:
            x_tile = tl.trans(x_tile)
        w_tile = tl.load(w_at, mask=inside[:, None], other=0.0) if TAIL else tl.load(w_at)
        if APART != "":
            total = step_added(total, x_tile, w_tile, APART)
        elif WHOLE:
            total = tl.dot(x_tile, w_tile, total, out_dtype=tl.int32)
        else:
            total = product_added(total, x_tile, w_tile, w_tile, SPLIT, False, EXACT)
        if COUNTED:
            first += BK
            tap += (first >= C).to(tl.int32)
            first = tl.where(first >= C, 0, first)
    return total


# fmt: off
@triton.jit
def implicit_gemm(
    x, w, bias, residual, y, scale,
    N, C, H, W, K, P, Q, X_N, X_C, X_H, X_W, Y_N, Y_K, Y_P, Y_Q, G, D, Z, X_D, Y_Z,
    C_TIMES, C_SHIFT, P_TIMES, P_SHIFT, Q_TIMES, Q_SHIFT, Z_TIMES, Z_SHIFT,
    R: tl.constexpr, S: tl.constexpr, T: tl.constexpr, X_PLANES: tl.constexpr, Y_PLANES: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr, PADDED: tl.constexpr,
    STRIDE_D: tl.constexpr, FRONT: tl.constexpr, DILATION_D: tl.constexpr,
    SCALE: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    SPLIT: tl.constexpr, FLAT: tl.constexpr, WIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr,
    APART: tl.constexpr, WHOLE: tl.constexpr, OVERLAPS: tl.constexpr,
    TAIL: tl.constexpr, EXACT: tl.constexpr, DEEP: tl.constexpr, PADDED_D: tl.constexpr, GROUPED: tl.constexpr,
    K_FITS: tl.constexpr, ODD_ROWS: tl.constexpr, RUN: tl.constexpr, C_RUN: tl.constexpr,
):
    # fmt: on
    """y = activation(scale * conv(x, w) + residual + bias), in G groups with C input and K output channels each.

    *_TIMES and *_SHIFT are reciprocals, or None; RUN divides Q, C_RUN divides C."""
    wait_for_the_kernel_ahead(OVERLAPS)
    M = N * Z * P * Q
    tiles_m = (M + BM - 1) // BM
    tiles_k = (K + BN - 1) // BN
    tiles_n = G * tiles_k if GROUPED else tiles_k

    program = tl.program_id(0)
    group = program // (GROUP_M * tiles_n)
    within = program % (GROUP_M * tiles_n)
    rows = min(tiles_m - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % rows) * BM + tl.arange(0, BM)
    tile_n = within // rows
    if GROUPED:
        g = tile_n // tiles_k
        tile_n = tile_n % tiles_k
        x += g * (C * X_C)
        w += g * (K * T * R * S * C)
        y += g * (K * Y_K)
        if SCALE:
            scale += g * K
        if BIAS:
            bias += g * K
        if RESIDUAL:
            residual += g * (K * Y_K)
    k = tile_n * BN + tl.arange(0, BN)

    # Rows and columns past the end read the last one again, which is cheaper than masking every load.
    n, z, p, q = _pixel(
        tl.minimum(m, M - 1), Z, P, Q, P_TIMES, P_SHIFT, Q_TIMES, Q_SHIFT, Z_TIMES, Z_SHIFT, DEEP, 1
    )  # fmt: skip
    k_read = k if K_FITS else tl.minimum(k, K - 1)
    d = z * STRIDE_D - FRONT if DEEP else tl.zeros_like(m)
    h = p * STRIDE_H - TOP
    v = q * STRIDE_W - LEFT
    if WIDE:
        n = n.to(tl.int64)
    x_rows = x + (n * X_N + h * X_H + v * X_W)
    if DEEP:
        x_rows += d * X_D
    w_columns = w + k_read * (T * R * S * C)

    total = _sum_over_taps(
        x_rows, w_columns, h, v, d, C, H, W, D, X_C, X_D, X_H, X_W, C_TIMES, C_SHIFT, R, S, T,
        DILATION_D, DILATION_H, DILATION_W, FLIP, PADDED, PADDED_D, SPLIT, FLAT, X_PLANES,
        BM, BN, BK, APART, WHOLE, TAIL, EXACT, C_RUN,
    )  # fmt: skip
    if SPLIT:
        lost = total != total
        if any_of(lost):
            whole = _sum_over_taps(
                x_rows, w_columns, h, v, d, C, H, W, D, X_C, X_D, X_H, X_W, C_TIMES, C_SHIFT, R, S, T,
                DILATION_D, DILATION_H, DILATION_W, FLIP, PADDED, PADDED_D, False, FLAT, X_PLANES,
                BM, BN, BK, APART, WHOLE, TAIL, EXACT, C_RUN,
            )  # fmt: skip
            total = tl.where(lost, whole, total)

    n, z, p, q = _pixel(m, Z, P, Q, P_TIMES, P_SHIFT, Q_TIMES, Q_SHIFT, Z_TIMES, Z_SHIFT, DEEP, RUN)
    if WIDE:
        n = n.to(tl.int64)
    y_rows = n * Y_N + p * Y_P + q * Y_Q
    if DEEP:
        y_rows += z * Y_Z
    if ODD_ROWS:
        at = tl.max_contiguous(y_rows[None, :] + (k * Y_K)[:, None], [1, 2])
    else:
        at = outer(y_rows, k * Y_K, Y_PLANES)
    kept = tl.expand_dims(m < M, 0 if Y_PLANES else 1) & tl.expand_dims(k < K, 1 if Y_PLANES else 0)
    total = total.to(tl.float32)
    if SCALE:
        total *= tl.load(scale + k, mask=k < K, other=0.0)[None, :]
    if RESIDUAL:
        added = tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
        total += tl.trans(added) if Y_PLANES else added
    if BIAS:
        total += tl.load(bias + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
    total = activated(total, ACTIVATION, y.dtype.element_ty)
    total = stored_as(total, y.dtype.element_ty)
    tl.store(y + at, tl.trans(total) if Y_PLANES else total, mask=kept)


@triton.jit
def _pixel(
    m, Z, P, Q, P_TIMES, P_SHIFT, Q_TIMES, Q_SHIFT, Z_TIMES, Z_SHIFT, DEEP: tl.constexpr, RUN: tl.constexpr
):  # fmt: skip
    """Image, plane, row and column of each, by as few divisions as that takes."""
    row, q = divided(m, Q, Q_TIMES, Q_SHIFT, RUN)
    n, p = divided(row, P, P_TIMES, P_SHIFT, RUN, True)
    z = n
    if DEEP:
        n, z = divided(n, Z, Z_TIMES, Z_SHIFT, RUN, True)
    return n, z, p, q
