"""The kernels for few output channels and many input channels: each pixel's channels are summed separately for every
tap, then each output adds the sums of its taps. The taps of a row are added within a block, whose lanes exchange sums,
and the rows by a second kernel. `reference/kn2row` uses the same algorithm.

Neighbouring outputs read the same pixels. Here one thread reads a pixel once. Only sums over its channels, one per row
of taps, are read again.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated, derived
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.loading import loaded


# fmt: off
@triton.jit
def _channels(
    x, z, there, channels, X_C: tl.constexpr, RAGGED: tl.constexpr, MASKED: tl.constexpr, AHEAD: tl.constexpr,
    DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """AHEAD channels of some pixels in fp32; missing channels are zero."""
    read = ()
    for turn in tl.static_range(AHEAD):
        kept = there & (turn < channels) if RAGGED else there
        value = loaded(x + turn * X_C, kept, MASKED)
        if DERIVATIVE != "none":
            value = derived(value, loaded(z + turn * X_C, kept, MASKED), DERIVATIVE)
        read += (value,)
    return read


# fmt: off
@triton.jit
def _weights(
    w, channels, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, W_K: tl.constexpr,
    W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    AHEAD: tl.constexpr, MASKED: tl.constexpr,
):
    # fmt: on
    """The weights of AHEAD channels, (channel, k, tap), in fp32."""
    weights = ()
    for turn in tl.static_range(AHEAD):
        for k in tl.static_range(K):
            for tap in tl.static_range(T * R * S):
                lying = T * R * S - 1 - tap if FLIP else tap
                at = lying // (R * S) * W_T + lying // S % R * W_R + lying % S * W_S
                weights += (loaded(w + turn * W_C + (k * W_K + at), turn < channels, MASKED),)
    return weights


# fmt: off
@triton.jit
def _row(
    totals, lane, col, S: tl.constexpr, FIRST: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    LEFT: tl.constexpr, DILATION: tl.constexpr,
):
    # fmt: on
    """The contribution of a row of taps, whose sums begin at FIRST, to the output in each lane's column."""
    total = tl.zeros_like(totals[FIRST])
    for s in tl.static_range(S):
        if STRIDE == 1 and s * DILATION == LEFT:
            total += totals[FIRST + s]
        else:
            found = col * STRIDE + (s * DILATION - LEFT)
            inside = (found >= 0) & (found < WIDTH)
            other = tl.gather(totals[FIRST + s], tl.where(inside, lane - col + found, 0), axis=0)
            total += tl.where(inside, other, 0.0)
    return total


# fmt: off
@triton.jit
def sums_of_taps(
    x, w, sums, z,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    STRIDE_W: tl.constexpr, LEFT: tl.constexpr, DILATION_W: tl.constexpr,
    FLIP: tl.constexpr, DERIVATIVE: tl.constexpr, WIDE: tl.constexpr,
    PARTS: tl.constexpr, AHEAD: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr, BEFORE: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """sums[part, image, group, k, row of taps, row, q] for G groups with C input and K output channels each: the
    contribution of a row of taps to a row of pixels, over the channels of a part. With FLIP the first tap is the last
    one in the weight. With a DERIVATIVE, x is multiplied by the derivative of this activation at z, which has x's
    layout; otherwise z is None.

    A program has BLOCK pixels in rows of WIDTH, which begin BEFORE pixels before its first output, and COLUMNS outputs
    of each row. AHEAD channels, and with KEPT their weights, are read before the previous ones are summed. X_* and W_*
    are strides; WIDE selects 64-bit offsets.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    TAPS: tl.constexpr = T * R * S
    IN_ROW: tl.constexpr = (Q + COLUMNS - 1) // COLUMNS
    HEIGHT: tl.constexpr = BLOCK // WIDTH
    BLOCKS: tl.constexpr = (D * H + HEIGHT - 1) // HEIGHT * IN_ROW
    CHANNELS: tl.constexpr = (C + PARTS - 1) // PARTS
    RAGGED: tl.constexpr = CHANNELS % AHEAD > 0 or C % PARTS > 0
    WHOLE: tl.constexpr = IN_ROW == 1 and BEFORE == 0 and W == WIDTH and D * H % HEIGHT == 0

    block = tl.program_id(0) % BLOCKS
    program = tl.program_id(0) // BLOCKS
    part = program % PARTS
    place = program // PARTS
    g = place % G
    n = place // G
    lane = tl.arange(0, BLOCK)
    col = lane % WIDTH
    row = block // IN_ROW * HEIGHT + lane // WIDTH
    first_q = block % IN_ROW * COLUMNS
    column = first_q * STRIDE_W - BEFORE + col
    there = (row < D * H) & (column >= 0) & (column < W)
    if WIDE:
        n = n.to(tl.int64)
        place = place.to(tl.int64)
        part = part.to(tl.int64)
    first = program % PARTS * CHANNELS
    end = tl.minimum(first + CHANNELS, C)
    at = n * X_N + (g * C + first) * X_C + (row // H * X_D + row % H * X_H if D > 1 else row * X_H) + column * X_W
    w += g * W_G + first * W_C

    totals = ()
    for _ in tl.static_range(K * TAPS):
        totals += (tl.zeros((BLOCK,), tl.float32),)
    coming = _channels(
        x + at, z + at if DERIVATIVE != "none" else x, there, end - first, X_C, RAGGED, RAGGED or not WHOLE, AHEAD,
        DERIVATIVE,
    )  # fmt: skip
    if KEPT:
        coming_weights = _weights(w, end - first, K, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP, AHEAD, RAGGED)
    for step in tl.range(0, CHANNELS, AHEAD):
        read = coming
        if KEPT:
            weights = coming_weights
            coming_weights = _weights(
                w + (step + AHEAD) * W_C, end - first - step - AHEAD, K, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP, AHEAD,
                True,
            )  # fmt: skip
        else:
            weights = _weights(
                w + step * W_C, end - first - step, K, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP, AHEAD, RAGGED
            )
        behind = at + (step + AHEAD) * X_C
        coming = _channels(
            x + behind, z + behind if DERIVATIVE != "none" else x, there & (step + AHEAD < CHANNELS),
            end - first - step - AHEAD, X_C, RAGGED, True, AHEAD, DERIVATIVE,
        )  # fmt: skip
        for turn in tl.static_range(AHEAD):
            more = ()
            for each in tl.static_range(K * TAPS):
                more += (tl.fma(read[turn], weights[turn * K * TAPS + each], totals[each]),)
            totals = more
    to = ((part * (N * G) + place) * (K * T * R * D * H) + row) * Q + (first_q + col)
    written = (row < D * H) & (col < COLUMNS) & (first_q + col < Q)
    for each in tl.static_range(K * T * R):
        total = _row(totals, lane, col, S, each * S, WIDTH, STRIDE_W, LEFT - BEFORE, DILATION_W)
        tl.store(sums + to + each * (D * H * Q), total, mask=written)


# fmt: off
@triton.jit
def outputs_of_taps(
    sums, bias, residual, y,
    N: tl.constexpr, G: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, FRONT: tl.constexpr, TOP: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, WIDE: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(the sum of its rows of taps in ``sums`` + residual + bias). A program has BLOCK pixels of a
    channel."""
    wait_for_the_kernel_ahead(OVERLAPS)
    BLOCKS: tl.constexpr = (Z * P * Q + BLOCK - 1) // BLOCK
    PLANE: tl.constexpr = D * H * Q

    pixel = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    there = pixel < Z * P * Q
    channel = tl.program_id(0) // BLOCKS  # (image, group, k)
    k = channel % (G * K)
    n = channel // (G * K)
    if WIDE:
        n = n.to(tl.int64)
        channel = channel.to(tl.int64)
    q = pixel % Q
    p = pixel // Q % P
    plane = pixel // (Q * P)
    h = p * STRIDE_H - TOP
    d = plane * STRIDE_D - FRONT
    at = channel * (T * R * PLANE) + ((d * H + h) * Q + q)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in tl.range(PARTS):
        for tap in tl.static_range(T * R):
            behind_d = tap // R * DILATION_D
            behind_h = tap % R * DILATION_H
            inside = there & (h + behind_h >= 0) & (h + behind_h < H)
            if Z > 1 or D > 1 or T > 1 or FRONT != 0:
                inside = inside & (d + behind_d >= 0) & (d + behind_d < D)
            total += tl.load(sums + at + (tap * PLANE + (behind_d * H + behind_h) * Q), mask=inside, other=0.0)
        at += N * G * K * T * R * PLANE
    to = n * Y_N + k * Y_K + plane * Y_Z + p * Y_P + q * Y_Q
    if RESIDUAL:
        total += tl.load(residual + to, mask=there, other=0.0).to(tl.float32)
    if BIAS:
        total += tl.load(bias + k).to(tl.float32)
    tl.store(y + to, activated(total, ACTIVATION, y.dtype.element_ty).to(y.dtype.element_ty), mask=there)
