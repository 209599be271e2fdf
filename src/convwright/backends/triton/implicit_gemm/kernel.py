"""The kernel: a forward convolution as one matrix product whose left matrix is never stored.

Rows are output pixels (n, z, p, q), columns are output channels, and the sum runs over taps and input channels (t, r,
s, c); images have one z and t. The weight is K T R S C. If the input is N D H W C, both matrices are contiguous along
the sum. If it is N C D H W, its tile is read along the pixels and transposed, and so is an output in this layout. Each
group of channels is a separate product. If there are fewer tiles than multiprocessors, the sum is divided into parts,
each with its own programs, and a second kernel adds them.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated
from convwright.backends.triton.gemm.kernel import any_of, outer, pixels_by_channels, step_added, stored_as
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.tf32 import product_added


# fmt: off
@triton.jit
def _sum_over_taps(
    x_rows, w_columns, h, v, part,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    d, D: tl.constexpr, T: tl.constexpr, X_D: tl.constexpr, DILATION_D: tl.constexpr, PADDED_D: tl.constexpr,
    G: tl.constexpr,
    FLIP: tl.constexpr, PADDED: tl.constexpr, SPLIT: tl.constexpr, PACKED: tl.constexpr, FLAT: tl.constexpr,
    X_PLANES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
    APART: tl.constexpr, WHOLE: tl.constexpr,
):
    # fmt: on
    """One tile of the matrix product, or one part of it, in fp32, or in int32 for WHOLE numbers; (d, h, v) is the
    position that each row's first tap reads."""
    TAPS: tl.constexpr = T * R * S
    DEPTH: tl.constexpr = TAPS * C
    BLOCKS_C: tl.constexpr = (C + BK - 1) // BK
    STEPS: tl.constexpr = (DEPTH + BK - 1) // BK if FLAT else TAPS * BLOCKS_C
    STEPS_EACH: tl.constexpr = (STEPS + PARTS - 1) // PARTS
    BEYOND: tl.constexpr = STEPS_EACH * PARTS > STEPS  # whether the last part extends beyond the last step
    TAIL: tl.constexpr = (DEPTH if FLAT else C) % BK != 0 or BEYOND
    # In short sums fp32 errs so little that neglecting the product of the low parts would be visible.
    EXACT: tl.constexpr = DEPTH <= 32

    total = tl.zeros((BM, BN), tl.int32 if WHOLE else tl.float32)
    for turn in tl.range(STEPS_EACH):
        step = part * STEPS_EACH + turn
        if FLAT:
            depth = step * BK + tl.arange(0, BK)
            tap = depth // C
            c = depth % C
            inside = depth < DEPTH
        else:
            tap = step // BLOCKS_C
            c = step % BLOCKS_C * BK + tl.arange(0, BK)
            inside = (c < C) & (step < STEPS) if BEYOND else c < C
        h_tap = (tap // S % R if T > 1 else tap // S) * DILATION_H
        v_tap = tap % S * DILATION_W
        x_step = h_tap * X_H + v_tap * X_W + c * X_C
        if T > 1:
            x_step += tap // (R * S) * (DILATION_D * X_D)
        x_at = outer(x_rows, x_step, X_PLANES)
        w_at = w_columns[None, :] + ((TAPS - 1 - tap if FLIP else tap) * C + c)[:, None]

        if PADDED:
            if FLAT:
                h_read = outer(h, h_tap, X_PLANES)
                v_read = outer(v, v_tap, X_PLANES)
            else:
                h_read = tl.expand_dims(h + h_tap, 0 if X_PLANES else 1)
                v_read = tl.expand_dims(v + v_tap, 0 if X_PLANES else 1)
            real = (h_read >= 0) & (h_read < H) & (v_read >= 0) & (v_read < W)
            if PADDED_D:
                d_tap = tap // (R * S) * DILATION_D
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
        w_low = w_tile
        if SPLIT and PACKED:
            low_at = w_at + G * K * DEPTH
            w_low = tl.load(low_at, mask=inside[:, None], other=0.0) if TAIL else tl.load(low_at)
        if APART != "":
            total = step_added(total, x_tile, w_tile, APART)
        elif WHOLE:
            total = tl.dot(x_tile, w_tile, total, out_dtype=tl.int32)
        else:
            total = product_added(total, x_tile, w_tile, w_low, SPLIT, PACKED, EXACT)
    return total


# fmt: off
@triton.jit
def implicit_gemm(
    x, w, bias, residual, y, scale,
    N: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, X_PLANES: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr, Y_PLANES: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr, PADDED: tl.constexpr,
    G: tl.constexpr, D: tl.constexpr, T: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, Y_Z: tl.constexpr,
    STRIDE_D: tl.constexpr, FRONT: tl.constexpr, DILATION_D: tl.constexpr,
    SCALE: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    SPLIT: tl.constexpr, PACKED: tl.constexpr, FLAT: tl.constexpr, WIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, PARTS: tl.constexpr,
    APART: tl.constexpr, WHOLE: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(scale * conv(x, w) + residual + bias), in G groups with C input and K output channels each. With
    several PARTS, y has their sums as PARTS N Z P Q K.

    X_* and Y_* are strides, *_PLANES: the operand is NCHW; FRONT, TOP and LEFT are padding; SPLIT computes fp32 by
    three TF32 products; PACKED: the weight is rounded to TF32, and with SPLIT the remainder follows it; FLAT lets a
    step of the sum span taps; WIDE selects 64-bit offsets. Tensor cores sum a step in APART, and it is added in fp32.
    WHOLE numbers are summed in int32.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    M: tl.constexpr = N * Z * P * Q
    TILES_M: tl.constexpr = (M + BM - 1) // BM
    TILES_K: tl.constexpr = (K + BN - 1) // BN
    TILES_N: tl.constexpr = G * TILES_K
    DEEP: tl.constexpr = Z > 1 or FRONT > 0
    PADDED_D: tl.constexpr = FRONT > 0 or (Z - 1) * STRIDE_D + (T - 1) * DILATION_D >= D

    # Neighbouring programs share GROUP_M row tiles, whose input stays in the cache.
    program = tl.program_id(0)
    part = 0
    if PARTS > 1:
        part = program // (TILES_M * TILES_N)
        program = program % (TILES_M * TILES_N)
        y += part * (M * G * K)
    group = program // (GROUP_M * TILES_N)
    within = program % (GROUP_M * TILES_N)
    rows = min(TILES_M - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % rows) * BM + tl.arange(0, BM)
    tile_n = within // rows
    if G > 1:
        g = tile_n // TILES_K
        tile_n = tile_n % TILES_K
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
    m_read = tl.minimum(m, M - 1)
    k_read = tl.minimum(k, K - 1) if K % BN else k
    n = m_read // (Z * P * Q)
    d = m_read // (P * Q) % Z * STRIDE_D - FRONT if DEEP else tl.zeros_like(m)
    h = m_read // Q % P * STRIDE_H - TOP
    v = m_read % Q * STRIDE_W - LEFT
    if WIDE:
        n = n.to(tl.int64)
    x_rows = x + (n * X_N + h * X_H + v * X_W)
    if DEEP:
        x_rows += d * X_D
    w_columns = w + k_read * (T * R * S * C)

    total = _sum_over_taps(
        x_rows, w_columns, h, v, part, C, H, W, K, R, S, X_C, X_H, X_W, DILATION_H, DILATION_W,
        d, D, T, X_D, DILATION_D, PADDED_D, G,
        FLIP, PADDED, SPLIT, PACKED, FLAT, X_PLANES, BM, BN, BK, PARTS, APART, WHOLE,
    )  # fmt: skip
    if SPLIT:
        # An infinity has no two parts, so it becomes NaN here. Such tiles are rare; the right outputs come from one
        # product of the unsplit numbers.
        lost = total != total
        if any_of(lost):
            whole = _sum_over_taps(
                x_rows, w_columns, h, v, part, C, H, W, K, R, S, X_C, X_H, X_W, DILATION_H, DILATION_W,
                d, D, T, X_D, DILATION_D, PADDED_D, G,
                FLIP, PADDED, False, PACKED, FLAT, X_PLANES, BM, BN, BK, PARTS, APART, WHOLE,
            )  # fmt: skip
            total = tl.where(lost, whole, total)
    if WHOLE and PARTS > 1:
        total = total.to(tl.float32, bitcast=True)  # the kernel that adds the parts casts them back

    write_tile(
        total, m, k, scale, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, Y_PLANES,
        SCALE, BIAS, RESIDUAL, ACTIVATION, WIDE,
    )  # fmt: skip


# fmt: off
@triton.jit
def write_tile(
    total, m, k, scale, bias, residual, y,
    N: tl.constexpr, K: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    Y_PLANES: tl.constexpr,
    SCALE: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, WIDE: tl.constexpr,
):
    # fmt: on
    """y = activation(scale * total + residual + bias) at the pixels ``m`` and channels ``k``."""
    M: tl.constexpr = N * Z * P * Q
    n = m // (Z * P * Q)
    if WIDE:
        n = n.to(tl.int64)
    y_rows = n * Y_N + m // Q % P * Y_P + m % Q * Y_Q
    if Z > 1:
        y_rows += m // (P * Q) % Z * Y_Z
    at = pixels_by_channels(y_rows, k * Y_K, Q, Y_Q, Y_PLANES)
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


# fmt: off
@triton.jit
def output_of_parts(
    sums, bias, residual, y, scale,
    N: tl.constexpr, K: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    Y_PLANES: tl.constexpr,
    SCALE: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, WIDE: tl.constexpr,
    PARTS: tl.constexpr, WHOLE: tl.constexpr, AT_ONCE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(scale * the sum of ``sums`` over PARTS + residual + bias), AT_ONCE parts at a time, always in the
    same order. WHOLE numbers are stored as the bits of int32."""
    wait_for_the_kernel_ahead(OVERLAPS)
    M: tl.constexpr = N * Z * P * Q
    TILES_N: tl.constexpr = (K + BN - 1) // BN
    m_first = tl.program_id(0) // TILES_N * BM
    k_first = tl.program_id(0) % TILES_N * BN

    # The tile as one row, so that warps load different parts of it concurrently.
    place = tl.arange(0, BM * BN)
    m = m_first + place // BN
    k = k_first + place % BN
    total = tl.zeros((BM * BN,), tl.int32 if WHOLE else tl.float32)
    for first in tl.static_range(0, PARTS, AT_ONCE):
        part = first + tl.arange(0, AT_ONCE)
        sums_at = sums + ((part * (M * K))[:, None] + (m * K + k)[None, :])
        there = (part < PARTS)[:, None] & ((m < M) & (k < K))[None, :]
        each = tl.load(sums_at, mask=there, other=0.0)
        total += tl.sum(each.to(tl.int32, bitcast=True) if WHOLE else each, axis=0)
    total = tl.reshape(total, (BM, BN))

    m = m_first + tl.arange(0, BM)
    k = k_first + tl.arange(0, BN)
    write_tile(
        total, m, k, scale, bias, residual, y, N, K, Z, P, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, Y_PLANES,
        SCALE, BIAS, RESIDUAL, ACTIVATION, WIDE,
    )  # fmt: skip
