"""The kernel: a weight gradient with few weights per input channel, each of which one thread sums.

Optionally dy is multiplied by an activation's derivative when it is read, and the bias gradient is summed too. In 3-D a
thread's patch is in one plane, and each plane of taps has its own programs, as has each block of taps of a large
filter.

There is no matrix product. A thread takes a patch of the output gradient, some rows and columns of one image, and reads
the patch of the input below it once: adjacent taps read the same input for adjacent pixels. It keeps the sums of all
taps in registers and continues with the next patch. At the end the threads of a channel add their sums.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.few_weights.sums import sum_by_pixel, sums_of_patches
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead
from convwright.backends.triton.parts.kernel import weight_at

# The end of a program: the sums of a channel's threads are added and stored.


@triton.jit
def side_by_side(sums, COUNT: tl.constexpr, LEVELS: tl.constexpr):
    """All sums as the last dimension of one tensor, padded with zeros to a power of two."""
    # Unrolled code compiles slowly, and each sum over lanes takes a barrier.
    level = sums
    for _ in tl.static_range(COUNT, 1 << LEVELS):
        level += (tl.zeros_like(sums[0]),)
    for depth in tl.static_range(LEVELS):
        joined = ()
        for i in tl.static_range(1 << (LEVELS - depth - 1)):
            joined += (tl.join(level[i], level[i + (1 << (LEVELS - depth - 1))]),)
        level = joined
    return level[0]


@triton.jit
def any_lost(sums, COUNT: tl.constexpr):
    """Whether any of the sums is NaN on any lane."""
    lost = sums[0] != sums[0]
    for i in tl.static_range(COUNT - 1):
        lost = lost | (sums[i + 1] != sums[i + 1])
    return tl.max(lost.to(tl.int32), axis=0) > 0


@triton.jit
def of_channels(total, CHANNELS: tl.constexpr, LANES: tl.constexpr, COUNT: tl.constexpr, ACROSS: tl.constexpr):
    """COUNT sums over the lanes of each channel, which are in ACROSS warps."""
    # A sum over warps in Triton stores to shared memory with conflicts: all lanes use one bank. For 49 taps of 32
    # channels this was two thirds of the kernel's time. Instead, halves are exchanged and added.
    total = tl.sum(tl.reshape(total, (ACROSS, LANES // CHANNELS // ACROSS, CHANNELS * COUNT)), axis=1)
    if ACROSS > 1:
        left, right = tl.split(tl.permute(tl.reshape(total, (2, ACROSS // 2 * CHANNELS * COUNT)), (1, 0)))
        total = left + right
    if ACROSS > 2:
        left, right = tl.split(tl.permute(tl.reshape(total, (2, ACROSS // 4 * CHANNELS * COUNT)), (1, 0)))
        total = left + right
    tl.static_assert(ACROSS <= 4)
    return tl.reshape(total, (CHANNELS, COUNT))


# fmt: off
@triton.jit
def store(
    out, totals, places, channel, k_block, t, r_first, s_first,
    G: tl.constexpr, C: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    FLIP: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, PARTS: tl.constexpr,
):
    # fmt: on
    """Store the sums of each ``channel`` for a block of the plane ``t`` of taps, at ``places`` among all sums of a
    thread, (i, s, k, r)."""
    r = r_first + places % TAPS_H
    s = s_first + places // (TAPS_H * OUTPUTS) % TAPS_W
    tap = ((t * R + r) * S + s)[None, :]
    k = (channel // C * K + k_block)[:, None] + (places // TAPS_H % OUTPUTS)[None, :]
    c = (channel % C)[:, None] + (places // (TAPS_H * OUTPUTS * TAPS_W))[None, :]
    at = (k * (T * R * S) + tap) * C + c
    if PARTS == 1:
        at = weight_at(k, tap, c, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
    there = places < INPUTS * TAPS_W * OUTPUTS * TAPS_H
    if R % TAPS_H:
        there = there & (r < R)
    if S % TAPS_W:
        there = there & (s < S)
    kept = (channel < G * C)[:, None] & there[None, :]
    tl.store(out + at, totals.to(out.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def store_bias(
    out, totals, channel, k_block, block, G: tl.constexpr, C: tl.constexpr, K: tl.constexpr, OUTPUTS: tl.constexpr,
    LEVELS: tl.constexpr,
):
    # fmt: on
    """Store the sums of each output's gradient. All channels of a group and all blocks of taps have them; the first
    stores them."""
    k = tl.arange(0, 1 << LEVELS)
    kept = ((channel < G * C) & (channel % C == 0) & (block == 0))[:, None] & (k < OUTPUTS)[None, :]
    at = (channel // C * K + k_block)[:, None] + k[None, :]
    tl.store(out + at, totals.to(out.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def few_weights(
    x, dy, out, z, db,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, FLIP: tl.constexpr, PADDED: tl.constexpr,
    WIDE: tl.constexpr, GAP_H: tl.constexpr, GAP_W: tl.constexpr, APART_H: tl.constexpr, APART_W: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    PARTS: tl.constexpr, STEPS: tl.constexpr, CHANNELS: tl.constexpr, LANES: tl.constexpr, ACROSS: tl.constexpr,
    LEVELS: tl.constexpr, DERIVATIVE: tl.constexpr, WITH_BIAS: tl.constexpr, BIAS_LEVELS: tl.constexpr,
    D: tl.constexpr, T: tl.constexpr, Z: tl.constexpr, X_D: tl.constexpr, W_T: tl.constexpr, Y_Z: tl.constexpr,
    STRIDE_D: tl.constexpr, FRONT: tl.constexpr, DILATION_D: tl.constexpr,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """out = the gradient, in G groups with C input and K output channels each; with several PARTS, their sums in fp32
    as PARTS K T R S C. With a DERIVATIVE, dy is multiplied by the derivative of this activation at z, which has dy's
    layout. WITH_BIAS, db = the sums of dy; with several PARTS they follow the sums of each part in out.

    X_*, Y_* and W_* are strides; FRONT, TOP and LEFT are padding; WIDE selects 64-bit offsets. A patch has ROWS rows
    that are GAP_H apart, whose inputs are APART_H dilations apart; columns likewise. CHANNELS lanes are adjacent in the
    channels of the input, or in every INPUTS-th of them; the others are in the patches of all images, which are divided
    into PARTS. The lanes of a channel are in ACROSS warps. A program sums for OUTPUTS channels of each group's output
    and for one plane of taps, or TAPS_H rows and TAPS_W columns of it; a thread has at most 2^LEVELS sums.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    TOGETHER: tl.constexpr = LANES // CHANNELS
    SPANS_H: tl.constexpr = (P + ROWS * GAP_H - 1) // (ROWS * GAP_H) * GAP_H
    SPANS_W: tl.constexpr = (Q + COLUMNS * GAP_W - 1) // (COLUMNS * GAP_W) * GAP_W
    C_BLOCKS: tl.constexpr = (G * C + CHANNELS * INPUTS - 1) // (CHANNELS * INPUTS)
    K_BLOCKS: tl.constexpr = K // OUTPUTS
    BLOCKS_H: tl.constexpr = (R + TAPS_H - 1) // TAPS_H
    BLOCKS_W: tl.constexpr = (S + TAPS_W - 1) // TAPS_W
    BLOCKS: tl.constexpr = T * BLOCKS_H * BLOCKS_W
    BEYOND: tl.constexpr = R % TAPS_H > 0 or S % TAPS_W > 0
    COUNT: tl.constexpr = INPUTS * TAPS_W * OUTPUTS * TAPS_H
    TAIL: tl.constexpr = G * C % (CHANNELS * INPUTS) > 0 or PARTS * STEPS * TOGETHER > N * Z * SPANS_H * SPANS_W
    DEEP: tl.constexpr = D > 1 or T > 1 or Z > 1 or FRONT > 0
    PADDED_D: tl.constexpr = FRONT > 0 or (Z - 1) * STRIDE_D + (T - 1) * DILATION_D >= D
    RAGGED: tl.constexpr = P % (ROWS * GAP_H) > 0 or Q % (COLUMNS * GAP_W) > 0

    # Programs of one part, and of neighbouring blocks of taps, read the same pixels and are adjacent.
    program = tl.program_id(0)
    block = 0
    if BLOCKS > 1:
        block = program % BLOCKS
        program = program // BLOCKS
    t = block // (BLOCKS_H * BLOCKS_W)
    r_first = block // BLOCKS_W % BLOCKS_H * TAPS_H
    s_first = block % BLOCKS_W * TAPS_W
    d_first = t * DILATION_D - FRONT
    h_first = r_first * DILATION_H - TOP
    v_first = s_first * DILATION_W - LEFT
    part = program // (C_BLOCKS * K_BLOCKS)
    k_block = program % K_BLOCKS * OUTPUTS
    c_block = program // K_BLOCKS % C_BLOCKS * (CHANNELS * INPUTS)
    channel = c_block
    first = part * (STEPS * TOGETHER)
    if CHANNELS > 1:
        channel += tl.arange(0, LANES) % CHANNELS * INPUTS
    if TOGETHER > 1:
        first += tl.arange(0, LANES) // CHANNELS
    x += channel * X_C
    y_first = (channel // C * K + k_block) * Y_K
    dy += y_first
    if DERIVATIVE != "none":
        z += y_first
    sums = sums_of_patches(
        x, dy, z, first, channel < G * C, N, H, W, TAPS_H, TAPS_W, P, Q, X_N, X_C, X_H, X_W, Y_N, Y_K, Y_P, Y_Q,
        STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, PADDED or BEYOND, WIDE, GAP_H, GAP_W, APART_H, APART_W,
        ROWS, COLUMNS, OUTPUTS, INPUTS, SPANS_H, SPANS_W, STEPS, TOGETHER, LANES, TAIL, DERIVATIVE, WITH_BIAS,
        d_first, h_first, v_first, D, Z, X_D, Y_Z, STRIDE_D, DEEP, PADDED_D,
    )  # fmt: skip

    if PARTS > 1:
        out += part.to(tl.int64) * (G * K * (C * T * R * S + (1 if WITH_BIAS else 0)))
        db = out + G * K * C * T * R * S
    channels = c_block + tl.arange(0, CHANNELS) * INPUTS
    if WITH_BIAS:
        of_bias = side_by_side(sums[COUNT:], OUTPUTS, BIAS_LEVELS)
        of_bias = of_channels(of_bias, CHANNELS, LANES, 1 << BIAS_LEVELS, ACROSS)
        store_bias(db, of_bias, channels, k_block, block, G, C, K, OUTPUTS, BIAS_LEVELS)
    # Pixels of a patch outside the image are zeros, and turn an infinity that the patch reads into NaN. Then the sums
    # are computed again pixel by pixel; few programs need that.
    if RAGGED:
        lost = any_lost(sums, COUNT)
    if RAGGED and lost:
        for place in tl.range(COUNT):
            r = r_first + place % TAPS_H
            s = s_first + place // (TAPS_H * OUTPUTS) % TAPS_W
            x_at = x + place // (TAPS_H * OUTPUTS * TAPS_W) * X_C
            y_at = place // TAPS_H % OUTPUTS * Y_K
            total = sum_by_pixel(
                x_at, dy + y_at, dy if DERIVATIVE == "none" else z + y_at, first, channel < G * C, r, s, N, H, W, P, Q,
                X_N, X_H, X_W, Y_N, Y_P, Y_Q, STRIDE_H, STRIDE_W, TOP, LEFT, DILATION_H, DILATION_W, WIDE,
                GAP_H, GAP_W, ROWS, COLUMNS, SPANS_H, SPANS_W, STEPS, TOGETHER, LANES, DERIVATIVE,
                d_first, D, Z, X_D, Y_Z, STRIDE_D, DEEP,
            )  # fmt: skip
            store(
                out, of_channels(total, CHANNELS, LANES, 1, ACROSS), place + tl.arange(0, 1), channels, k_block, t,
                r_first, s_first, G, C, K, T, R, S, TAPS_H, TAPS_W, W_K, W_C, W_T, W_R, W_S, FLIP, OUTPUTS, INPUTS,
                PARTS,
            )  # fmt: skip
    else:
        total = side_by_side(sums[:COUNT], COUNT, LEVELS)
        store(
            out, of_channels(total, CHANNELS, LANES, 1 << LEVELS, ACROSS), tl.arange(0, 1 << LEVELS), channels,
            k_block, t, r_first, s_first, G, C, K, T, R, S, TAPS_H, TAPS_W, W_K, W_C, W_T, W_R, W_S, FLIP, OUTPUTS,
            INPUTS, PARTS,
        )  # fmt: skip
