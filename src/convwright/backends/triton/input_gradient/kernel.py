"""The kernel: the gradient of an input as one matrix product for each phase, whose left matrix is never written down.

Windows lie strides apart, so a tap reaches only those pixels of the input whose places leave one remainder by the
strides. Pixels of equal remainders are a phase: the same taps reach them, and of two neighbours among them the one is
reached from a place in dy beside that of the other. Rows are the pixels of a phase, columns are input channels c, and
the sum runs over the phase's taps and output channels (r, s, k). The weight lies as C R S K, along the sum, or as
K R S C.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.gemm.kernel import outer
from convwright.backends.triton.tf32 import product_added


@triton.jit
def _share(first, SIZE: tl.constexpr, STRIDE: tl.constexpr):
    """How many of SIZE places lie multiples of STRIDE behind ``first``, it counted."""
    if SIZE % STRIDE == 0:
        return SIZE // STRIDE
    return (SIZE - first + STRIDE - 1) // STRIDE


@triton.jit
def _divided(value, share, SIZE: tl.constexpr, STRIDE: tl.constexpr):
    """Quotient and remainder by a share of SIZE, which is one of two constants: no division is needed."""
    if SIZE % STRIDE == 0:
        return value // (SIZE // STRIDE), value % (SIZE // STRIDE)
    MOST: tl.constexpr = SIZE // STRIDE + 1
    LEAST: tl.constexpr = SIZE // STRIDE if SIZE >= STRIDE else 1
    quotient = tl.where(share == MOST, value // MOST, value // LEAST)
    return quotient, value - quotient * share


# fmt: off
@triton.jit
def _sum_over_taps(
    dy, dy_rows, w_columns, p, q, first_tap, taps_w, depth,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    W_K: tl.constexpr, W_TAP: tl.constexpr, W_SIZE: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FLIP: tl.constexpr, PADDED: tl.constexpr, SPLIT: tl.constexpr, PACKED: tl.constexpr, FLAT: tl.constexpr,
    Y_PLANES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    # fmt: on
    """One tile of a phase's product in fp32, a sum of ``depth`` numbers; (p, q) is what each row's first tap reads."""
    BLOCKS_K: tl.constexpr = (K + BK - 1) // BK
    TAIL: tl.constexpr = K % BK != 0  # as it always is where a step runs across taps
    # In a sum so short fp32 itself errs so little that the neglected product of low parts would show beside it.
    LEAST_H: tl.constexpr = R // STRIDE_H if R >= STRIDE_H else 1
    LEAST_W: tl.constexpr = S // STRIDE_W if S >= STRIDE_W else 1
    EXACT: tl.constexpr = LEAST_H * LEAST_W * K <= 32

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
        behind = i * (STRIDE_H * S) + j * STRIDE_W
        lying = first_tap - behind if FLIP else first_tap + behind
        dy_at = outer(dy_rows, k * Y_K - (i * (DILATION_H * Y_P) + j * (DILATION_W * Y_Q)), Y_PLANES)
        if PACKED:
            dy_at = dy + dy_at
        w_at = w_columns[None, :] + (lying * W_TAP + k * W_K)[:, None]

        if PADDED:
            # What lies before dy is far behind its end as a number without a sign.
            if FLAT:
                p_read = outer(p, -i * DILATION_H, Y_PLANES)
                q_read = outer(q, -j * DILATION_W, Y_PLANES)
            else:
                p_read = tl.expand_dims(p - i * DILATION_H, 0 if Y_PLANES else 1)
                q_read = tl.expand_dims(q - j * DILATION_W, 0 if Y_PLANES else 1)
            real = (p_read.to(tl.uint32) < P) & (q_read.to(tl.uint32) < Q)
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
    N: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, X_PLANES: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr, Y_PLANES: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_TAP: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr, PADDED: tl.constexpr,
    SPLIT: tl.constexpr, PACKED: tl.constexpr, FLAT: tl.constexpr, WIDE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, PHASES: tl.constexpr,
):
    # fmt: on
    """dx = the gradient of conv(x, w) along x, where that of its output is dy.

    X_*, Y_* and W_* are strides, *_PLANES says that an operand lies in planes; TOP and LEFT are padding; PADDED says
    that taps reach beyond dy; SPLIT computes fp32 by three TF32 products; PACKED takes the weight rounded to TF32, with
    SPLIT the rest of it behind; FLAT lets a step of the sum run across taps; WIDE makes offsets 64 bits wide. PHASES
    has for each the first of its programs and the first of its taps.
    """
    TILES_N: tl.constexpr = (C + BN - 1) // BN

    program = tl.program_id(0)
    begun = 0
    r = 0
    s = 0
    for place in tl.static_range(len(PHASES)):
        reached = program >= PHASES[place][0]
        begun = tl.where(reached, PHASES[place][0], begun)
        r = tl.where(reached, PHASES[place][1], r)
        s = tl.where(reached, PHASES[place][2], s)
    program -= begun

    # Places of the phase's first pixel, how many there are, and how many taps.
    h_first = (r + STRIDE_H - TOP % STRIDE_H) % STRIDE_H
    v_first = (s + STRIDE_W - LEFT % STRIDE_W) % STRIDE_W
    rows_h = _share(h_first, H, STRIDE_H)
    rows_w = _share(v_first, W, STRIDE_W)
    taps_h = _share(r, R, STRIDE_H)
    taps_w = _share(s, S, STRIDE_W)
    M = N * rows_h * rows_w
    tiles_m = (M + BM - 1) // BM

    # Neighbouring programs share GROUP_M row tiles, whose part of dy then stays in the cache.
    group = program // (GROUP_M * TILES_N)
    within = program % (GROUP_M * TILES_N)
    rows = min(tiles_m - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % rows) * BM + tl.arange(0, BM)
    c = within // rows * BN + tl.arange(0, BN)

    # Rows and columns past the end read the last one again, which is cheaper than masking every load.
    m_read = tl.minimum(m, M - 1)
    c_read = tl.minimum(c, C - 1) if C % BN else c
    line, v = _divided(m_read, rows_w, W, STRIDE_W)
    n, h = _divided(line, rows_h, H, STRIDE_H)
    p = h + (h_first + TOP - r) // STRIDE_H
    q = v + (v_first + LEFT - s) // STRIDE_W
    if WIDE:
        n = n.to(tl.int64)
    dy_rows = n * Y_N + p * Y_P + q * Y_Q
    if not PACKED:  # there two parts of the weight need the registers that addresses take beyond offsets
        dy_rows = dy + dy_rows
    w_columns = w + c_read * W_C
    first_tap = R * S - 1 - (r * S + s) if FLIP else r * S + s
    depth = taps_h * taps_w * K

    total = _sum_over_taps(
        dy, dy_rows, w_columns, p, q, first_tap, taps_w, depth, K, R, S, P, Q, Y_K, Y_P, Y_Q, W_K, W_TAP,
        C * R * S * K, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, FLIP, PADDED, SPLIT, PACKED, FLAT, Y_PLANES,
        BM, BN, BK,
    )  # fmt: skip
    if SPLIT:
        # An infinity has no two parts, so it makes NaN here. Its true place in the output is found by one product
        # of the numbers as they are, in the rare tile that needs it.
        lost = total != total
        if tl.max(tl.max(lost.to(tl.int32), axis=1), axis=0) > 0:
            whole = _sum_over_taps(
                dy, dy_rows, w_columns, p, q, first_tap, taps_w, depth, K, R, S, P, Q, Y_K, Y_P, Y_Q, W_K, W_TAP,
                C * R * S * K, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, FLIP, PADDED, False, PACKED, FLAT, Y_PLANES,
                BM, BN, BK,
            )  # fmt: skip
            total = tl.where(lost, whole, total)

    line, v = _divided(m, rows_w, W, STRIDE_W)
    n, h = _divided(line, rows_h, H, STRIDE_H)
    if WIDE:
        n = n.to(tl.int64)
    x_rows = n * X_N + (h_first + h * STRIDE_H) * X_H + (v_first + v * STRIDE_W) * X_W
    at = outer(x_rows, c * X_C, X_PLANES)
    kept = tl.expand_dims(m < M, 0 if X_PLANES else 1) & tl.expand_dims(c < C, 1 if X_PLANES else 0)
    total = total.to(dx.dtype.element_ty)
    tl.store(dx + at, tl.trans(total) if X_PLANES else total, mask=kept)
