"""The kernel for few channels, each of whose threads sums up a patch: some rows, each of some neighbouring columns.

It is told what `direct` is, and reads less: a row's elements are read once for all columns and all taps of a patch,
several by one instruction, where that one reads an element for each column of taps. In planes the neighbours that one
instruction reads are columns, and a program stays within one group, so that its lanes share the weights; with channels
last they are groups, and lanes run across the groups.

A filter whose taps are too many to be written out has a loop over its rows, each of which reads its own.

With channels last a patch may be a strip of many rows instead: a loop takes each row that is read into the sums of all
rows of the output that it bears on, and writes the one that is done. What is written out is a turn of that loop and not
all products of the patch, which takes the compiler a tenth of the time; the kernel takes a little longer.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated, derived
from convwright.backends.triton.loading import loaded


@triton.jit
def _parted(value, WIDTH: tl.constexpr):
    """The columns of a tensor, in their order. Each thread holds a row of it, so nothing moves."""
    columns = ()
    if WIDTH == 1:
        columns = (tl.reshape(value, (value.shape[0],)),)
    elif WIDTH == 2:
        columns = tl.split(value)
    else:
        even, odd = tl.split(tl.reshape(value, (value.shape[0], WIDTH // 2, 2)))
        evens = _parted(even, WIDTH // 2)
        odds = _parted(odd, WIDTH // 2)
        for column in tl.static_range(WIDTH // 2):
            columns += (evens[column], odds[column])
    return columns


@triton.jit
def _joined(columns, WIDTH: tl.constexpr):
    """The tensor with these columns."""
    if WIDTH == 1:
        whole = tl.expand_dims(columns[0], 1)
    else:
        evens = ()
        odds = ()
        for column in tl.static_range(WIDTH // 2):
            evens += (columns[2 * column],)
            odds += (columns[2 * column + 1],)
        both = tl.join(_joined(evens, WIDTH // 2), _joined(odds, WIDTH // 2))
        whole = tl.reshape(both, (both.shape[0], WIDTH))
    return whole


# fmt: off
@triton.jit
def _columns(
    at, z_at, v, there, RAGGED: tl.constexpr, FIRST: tl.constexpr, WIDTH: tl.constexpr, W: tl.constexpr,
    LAST_V: tl.constexpr, X_C: tl.constexpr, X_W: tl.constexpr, VECTOR: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """WIDTH columns of one row from FIRST behind the patch's on, those beyond the image zero: each a vector of lanes
    or, of VECTOR groups, a matrix. ``v`` is the column of the image where the patch's begin, at most LAST_V."""
    MASKED: tl.constexpr = RAGGED or FIRST < 0 or LAST_V + FIRST + WIDTH > W
    if FIRST < 0:
        there = there & (v + FIRST >= 0)
    if LAST_V + FIRST + WIDTH > W:
        there = there & (v + FIRST < W)
    if VECTOR == 0:
        places = tl.expand_dims(FIRST + tl.arange(0, WIDTH), 0)
    else:
        places = tl.expand_dims(FIRST * X_W + tl.arange(0, VECTOR) * X_C, 0)
    there = tl.expand_dims(there, 1)
    value = loaded(tl.expand_dims(at, 1) + places, there, MASKED)
    if DERIVATIVE != "none":
        value = derived(value, loaded(tl.expand_dims(z_at, 1) + places, there, MASKED), DERIVATIVE)
    return _parted(value, WIDTH if VECTOR == 0 else VECTOR)


# fmt: off
@triton.jit
def _row(
    at, z_at, v, there, RAGGED: tl.constexpr, PIECES: tl.constexpr, W: tl.constexpr, LAST_V: tl.constexpr,
    X_C: tl.constexpr, X_W: tl.constexpr, VECTOR: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """All columns that the patch's taps read of one row, piece by piece."""
    columns = ()
    for piece in tl.static_range(len(PIECES)):
        columns += _columns(
            at, z_at, v, there, RAGGED, PIECES[piece][0], PIECES[piece][1], W, LAST_V, X_C, X_W, VECTOR, DERIVATIVE
        )
    return columns


# fmt: off
@triton.jit
def _added(
    sums, columns, taps, PLACES: tl.constexpr, READ: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr, GROUPS: tl.constexpr,
):
    # fmt: on
    """The sums, (row, k, column, group), with what was read of row READ, (column, group); ``taps`` is what they weigh,
    (r, s, k, group)."""
    more = ()
    for row in tl.static_range(ROWS):
        for k in tl.static_range(OUTPUTS):
            for column in tl.static_range(COLS):
                for group in tl.static_range(GROUPS):
                    total = sums[((row * OUTPUTS + k) * COLS + column) * GROUPS + group]
                    if row * APART <= READ and row * APART + R > READ:
                        for s in tl.static_range(S):
                            weight = taps[(((READ - row * APART) * S + s) * OUTPUTS + k) * GROUPS + group]
                            total = tl.fma(columns[PLACES[s][column] * GROUPS + group], weight, total)
                    more += (total,)
    return more


# fmt: off
@triton.jit
def _weights(
    w, k_first, there, R: tl.constexpr, S: tl.constexpr, K: tl.constexpr, W_G: tl.constexpr,
    W_K: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr, OUTPUTS: tl.constexpr,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr,
):
    # fmt: on
    """Of one plane of one input channel, (r, s, k, group): numbers, or one for each lane where these have channels or
    groups of their own."""
    taps = ()
    for r in tl.static_range(R):
        for s in tl.static_range(S):
            tap = w + ((R - 1 - r if FLIP else r) * W_R + (S - 1 - s if FLIP else s) * W_S)
            for out in tl.static_range(OUTPUTS):
                # Beyond the last channel that one is read again.
                at = tap + (tl.minimum(k_first + out, K - 1) if K % OUTPUTS else k_first + out) * W_K
                if VECTOR > 0:
                    weights = tl.load(tl.expand_dims(at, 1) + tl.expand_dims(tl.arange(0, VECTOR) * W_G, 0))
                    taps += _parted(weights.to(tl.float32), VECTOR)
                elif SPLIT > 1:
                    taps += (tl.load(at, mask=there, other=0.0).to(tl.float32),)
                else:
                    taps += (tl.load(at).to(tl.float32),)
    return taps


# fmt: off
@triton.jit
def _over_channels(
    x, z, w, k_first, group, d, h, v, there, RAGGED: tl.constexpr, LAST_H: tl.constexpr, LAST_V: tl.constexpr,
    DEPTH: tl.constexpr, C: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr,
    X_H: tl.constexpr, X_W: tl.constexpr, W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr,
    W_R: tl.constexpr, W_S: tl.constexpr, STRIDE_D: tl.constexpr, FRONT: tl.constexpr, TOP: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, FLIP: tl.constexpr, DERIVATIVE: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr,
    PIECES: tl.constexpr, PLACES: tl.constexpr, BY_ROW: tl.constexpr, SPLIT: tl.constexpr, VECTOR: tl.constexpr,
    LANES: tl.constexpr,
):
    # fmt: on
    """The patch's sums in fp32 over every SPLIT-th input channel, of which ``group`` is the first. (d, h, v) is where
    the patch's first tap reads without padding, and ``x`` that place in the first channel."""
    GROUPS: tl.constexpr = 1 if VECTOR == 0 else VECTOR
    ROWS_OF_TAPS: tl.constexpr = 1 if BY_ROW else R
    STEPS: tl.constexpr = R if BY_ROW else 1
    PADDED_D: tl.constexpr = FRONT > 0 or (DEPTH - 1) * STRIDE_D - FRONT + (T - 1) * DILATION_D >= D

    sums = ()
    for _ in tl.static_range(ROWS * OUTPUTS * COLS * GROUPS):
        sums += (tl.zeros((LANES,), tl.float32),)
    for step in tl.range((C + SPLIT - 1) // SPLIT * T * STEPS):
        offset = 0
        w_plane = w
        real = there
        if C > 1:
            c = step // (T * STEPS) * SPLIT + group
            offset += c * X_C
            w_plane += c * W_C
            if C % SPLIT:
                real = real & (c < C)
        if T > 1:
            t = step // STEPS % T
            offset += t * (DILATION_D * X_D)
            w_plane += (T - 1 - t if FLIP else t) * W_T
        if PADDED_D:
            d_read = d + step // STEPS % T * DILATION_D
            real = real & (d_read >= 0) & (d_read < D)
        r = 0
        if BY_ROW:
            r = step % R
            offset += r * (DILATION_H * X_H)
            w_plane += (R - 1 - r if FLIP else r) * W_R
        taps = _weights(
            w_plane, k_first, real, ROWS_OF_TAPS, S, K, W_G, W_K, W_R, W_S, FLIP, OUTPUTS, SPLIT, VECTOR
        )
        for row in tl.static_range((ROWS - 1) * APART + ROWS_OF_TAPS):
            h_read = h + (row + r) * DILATION_H
            inside = real
            if row * DILATION_H < TOP:
                inside = inside & (h_read >= 0)
            if LAST_H + (row + R - ROWS_OF_TAPS) * DILATION_H >= H:
                inside = inside & (h_read < H)
            at = offset + row * DILATION_H * X_H
            columns = _row(
                x + at, z + at if DERIVATIVE != "none" else x, v, inside,
                RAGGED or C % SPLIT > 0 or PADDED_D or row * DILATION_H < TOP
                or LAST_H + (row + R - ROWS_OF_TAPS) * DILATION_H >= H,
                PIECES, W, LAST_V, X_C, X_W, VECTOR, DERIVATIVE,
            )  # fmt: skip
            sums = _added(sums, columns, taps, PLACES, row, ROWS_OF_TAPS, S, APART, ROWS, COLS, OUTPUTS, GROUPS)
    return sums


# fmt: off
@triton.jit
def _place(
    program, lane, G: tl.constexpr, Z: tl.constexpr, UNITS: tl.constexpr, PATCHES: tl.constexpr, WIDTH: tl.constexpr,
    SPANS: tl.constexpr, GAP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, VECTOR: tl.constexpr,
    WIDE: tl.constexpr,
):
    # fmt: on
    """Whose patches a program's lanes have, if they are there: image, group, plane, and the first row and column."""
    BLOCKS: tl.constexpr = (UNITS + PATCHES - 1) // PATCHES
    unit = program % BLOCKS * PATCHES + lane
    there = unit < UNITS
    g = program // BLOCKS
    if VECTOR > 0:
        g = unit % (G // VECTOR) * VECTOR
        unit = unit // (G // VECTOR)
    q = unit % WIDTH * COLS
    span = unit // WIDTH % SPANS
    p = span // GAP * (ROWS * GAP) + span % GAP
    image = unit // (WIDTH * SPANS)
    plane = 0
    if Z > 1:
        plane = image % Z
        image = image // Z
    if WIDE:
        image = image.to(tl.int64)
    return there, image, g, plane, p, q


# fmt: off
@triton.jit
def _write_row(
    y, bias, residual, sums, there, n, g, k_first, plane, h, q,
    K: tl.constexpr, Z: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    FIRST: tl.constexpr, COLS: tl.constexpr, WRITTEN: tl.constexpr, OUTPUTS: tl.constexpr,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr,
):
    # fmt: on
    """The patches' results of row ``h``, the ``sums`` from FIRST on, WRITTEN columns or groups side by side at once."""
    PARTS: tl.constexpr = COLS // WRITTEN if VECTOR == 0 else COLS
    for out in tl.static_range(OUTPUTS):
        k = k_first + out
        for part in tl.static_range(PARTS):
            column = q + part * (WRITTEN if VECTOR == 0 else 1)
            kept = there
            if K % OUTPUTS:
                kept = kept & (k < K)
            if Q % COLS:
                kept = kept & (column < Q)
            kept = tl.expand_dims(kept, 1)
            at = n * Y_N + (g * K + k) * Y_K + h * Y_P + column * Y_Q
            if Z > 1:
                at += plane * Y_Z
            at = tl.expand_dims(at, 1) + tl.expand_dims(tl.arange(0, WRITTEN) * (Y_Q if VECTOR == 0 else Y_K), 0)
            columns = ()
            for place in tl.static_range(WRITTEN):
                columns += (_total(sums[FIRST + (out * PARTS + part) * WRITTEN + place], SPLIT),)
            total = _joined(columns, WRITTEN)
            if RESIDUAL:
                total += tl.load(residual + at, mask=kept, other=0.0).to(tl.float32)
            if BIAS:
                total += _bias(bias, g * K + (tl.minimum(k, K - 1) if K % OUTPUTS else k), VECTOR)
            tl.store(y + at, activated(total, ACTIVATION).to(y.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def _weights_across(
    w, R: tl.constexpr, S: tl.constexpr, W_G: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    VECTOR: tl.constexpr, LANES: tl.constexpr,
):
    # fmt: on
    """Those of each lane's VECTOR groups, (r, s, group), where each group's taps lie side by side: lanes read across
    groups and exchange what they have, as one that reads its own alone asks for a line of the cache for each tap."""
    WIDTH: tl.constexpr = triton.next_power_of_2(R * S)
    tap = tl.arange(0, WIDTH)
    places = tl.expand_dims(tap * W_S if W_R == S * W_S else tap // S * W_R + tap % S * W_S, 0)
    groups = tl.expand_dims(w, 1) + tl.expand_dims(tl.arange(0, VECTOR) * W_G, 0)
    at = tl.expand_dims(groups, 2) + tl.expand_dims(places, 0)
    whole = tl.load(at, mask=tl.expand_dims(tl.expand_dims(tap < R * S, 0), 0), other=0.0)
    columns = _parted(tl.reshape(whole, (LANES, VECTOR * WIDTH)), VECTOR * WIDTH)
    taps = ()
    for tap in tl.static_range(R * S):
        for group in tl.static_range(VECTOR):
            taps += (columns[group * WIDTH + (R * S - 1 - tap if FLIP else tap)].to(tl.float32),)
    return taps


# fmt: off
@triton.jit
def _rows_of_turn(
    x, z, first, h, v, there, RAGGED: tl.constexpr, OUTSIDE: tl.constexpr, LAST_V: tl.constexpr, H: tl.constexpr,
    W: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, DILATION_H: tl.constexpr,
    DERIVATIVE: tl.constexpr, APART: tl.constexpr, PIECES: tl.constexpr, VECTOR: tl.constexpr,
):
    # fmt: on
    """What a turn reads: APART rows, the ``first`` of which lies so many dilations behind ``h``; OUTSIDE says whether
    some of a patch's may lie beyond the image."""
    columns = ()
    for row in tl.static_range(APART):
        behind = (first + row) * DILATION_H
        inside = there
        if OUTSIDE:
            inside = inside & (h + behind >= 0) & (h + behind < H)
        at = behind * X_H
        columns += _row(
            x + at, z + at if DERIVATIVE != "none" else x, v, inside, RAGGED or OUTSIDE, PIECES, W, LAST_V, X_C, X_W,
            VECTOR, DERIVATIVE,
        )  # fmt: skip
    return columns


# fmt: off
@triton.jit
def _turned(
    sums, columns, taps, PLACES: tl.constexpr, R: tl.constexpr, S: tl.constexpr, APART: tl.constexpr,
    COLS: tl.constexpr, GROUPS: tl.constexpr, LANES: tl.constexpr,
):
    # fmt: on
    """The sums of all rows under way, the oldest first, (row, column, group), with the APART rows that a turn has read;
    those of the youngest row begin here."""
    ROWS: tl.constexpr = (R + APART - 1) // APART
    READ: tl.constexpr = len(columns) // APART
    more = ()
    for row in tl.static_range(ROWS):
        for column in tl.static_range(COLS):
            for group in tl.static_range(GROUPS):
                if row < ROWS - 1:
                    total = sums[(row * COLS + column) * GROUPS + group]
                else:
                    total = tl.zeros((LANES,), tl.float32)
                for read in tl.static_range(APART):
                    if (ROWS - 1 - row) * APART + read < R:
                        for s in tl.static_range(S):
                            weight = taps[(((ROWS - 1 - row) * APART + read) * S + s) * GROUPS + group]
                            total = tl.fma(columns[read * READ + PLACES[s][column] * GROUPS + group], weight, total)
                more += (total,)
    return more


# fmt: off
@triton.jit
def _by_turns(
    x, z, w, y, bias, residual, there, n, g, plane, h, v, p, q, RAGGED: tl.constexpr, OUTSIDE: tl.constexpr,
    LAST_V: tl.constexpr, H: tl.constexpr, W: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, X_C: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr, W_G: tl.constexpr,
    W_R: tl.constexpr, W_S: tl.constexpr, Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr,
    Y_P: tl.constexpr, Y_Q: tl.constexpr, DILATION_H: tl.constexpr, FLIP: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, DERIVATIVE: tl.constexpr, GAP: tl.constexpr,
    APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, PIECES: tl.constexpr, PLACES: tl.constexpr,
    VECTOR: tl.constexpr, LANES: tl.constexpr, FIRST: tl.constexpr, END: tl.constexpr,
):
    # fmt: on
    """Sum up and write strips of ROWS rows, of VECTOR groups with one channel each, in the turns from FIRST to END."""
    UNDER_WAY: tl.constexpr = (R + APART - 1) // APART - 1  # rows whose sums a turn leaves unfinished
    EACH: tl.constexpr = COLS * VECTOR
    if W_G > 1:
        taps = _weights_across(w, R, S, W_G, W_R, W_S, FLIP, VECTOR, LANES)
    else:
        taps = _weights(w, 0, there, R, S, 1, W_G, 0, W_R, W_S, FLIP, 1, 1, VECTOR)
    sums = ()
    for _ in tl.static_range(UNDER_WAY * EACH):
        sums += (tl.zeros((LANES,), tl.float32),)
    ahead = _rows_of_turn(
        x, z, FIRST * APART, h, v, there, RAGGED, OUTSIDE, LAST_V, H, W, X_C, X_H, X_W, DILATION_H, DERIVATIVE, APART,
        PIECES, VECTOR,
    )  # fmt: skip
    for turn in tl.range(FIRST, END):
        columns = ahead
        ahead = _rows_of_turn(
            x, z, (turn + 1) * APART, h, v, there & (turn + 1 < END), True, OUTSIDE, LAST_V, H, W, X_C, X_H, X_W,
            DILATION_H, DERIVATIVE, APART, PIECES, VECTOR,
        )  # fmt: skip
        all_sums = _turned(sums, columns, taps, PLACES, R, S, APART, COLS, VECTOR, LANES)
        row = p + (turn - UNDER_WAY) * GAP
        _write_row(
            y, bias, residual, all_sums, there & (turn >= UNDER_WAY) & (row < P), n, g, 0, plane, row, q, 1, Z, Q, Y_N,
            Y_K, Y_Z, Y_P, Y_Q, BIAS, RESIDUAL, ACTIVATION, 0, COLS, VECTOR, 1, 1, VECTOR,
        )  # fmt: skip
        sums = ()
        for place in tl.static_range(UNDER_WAY * EACH):
            sums += (all_sums[EACH + place],)
    # What is read no more bears on the last rows.
    for late in tl.static_range(ROWS + UNDER_WAY - END):
        row = p + (END - UNDER_WAY + late) * GAP
        _write_row(
            y, bias, residual, sums, there & (row < P), n, g, 0, plane, row, q, 1, Z, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q,
            BIAS, RESIDUAL, ACTIVATION, late * EACH, COLS, VECTOR, 1, 1, VECTOR,
        )  # fmt: skip


@triton.jit
def _total(sums, SPLIT: tl.constexpr):
    """Those of the groups of lanes added up."""
    return tl.sum(tl.reshape(sums, (SPLIT, sums.shape[0] // SPLIT)), axis=0) if SPLIT > 1 else sums


@triton.jit
def _bias(bias, k, VECTOR: tl.constexpr):
    """One number, or those of VECTOR groups."""
    if VECTOR > 0:
        value = tl.load(bias + tl.expand_dims(k, 1) + tl.expand_dims(tl.arange(0, VECTOR), 0))
    else:
        value = tl.load(bias + k)
    return value.to(tl.float32)


# fmt: off
@triton.jit
def wide_direct(
    x, w, bias, residual, y, z,
    N: tl.constexpr, G: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    X_N: tl.constexpr, X_C: tl.constexpr, X_D: tl.constexpr, X_H: tl.constexpr, X_W: tl.constexpr,
    W_G: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, DILATION_D: tl.constexpr, DILATION_H: tl.constexpr,
    FLIP: tl.constexpr, W_FIRST: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, DERIVATIVE: tl.constexpr, WIDE: tl.constexpr,
    GAP: tl.constexpr, APART: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, OUTPUTS: tl.constexpr,
    WRITTEN: tl.constexpr, PIECES: tl.constexpr, PLACES: tl.constexpr, BY_ROW: tl.constexpr,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr, PATCHES: tl.constexpr, TURNS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias), in G groups with C input and K output channels each. With a
    DERIVATIVE x is multiplied by that of this activation at z, which lies as x does, and is None without.

    X_*, W_* and Y_* are strides; WIDE makes offsets 64 bits wide. W_FIRST is where the tap lies that is the first one
    in the weight. A program has PATCHES patches of one group's images or, where VECTOR is not 0, of as many groups at
    once for each lane. A patch is COLS columns, in OUTPUTS channels of a group, of ROWS rows that are GAP apart; what
    is read for each lies APART dilations behind what is read for the one before. Each of SPLIT groups of lanes sums up
    as many of the input channels. PIECES are the columns that a patch reads of a row, (first, width), and PLACES where
    among them each tap finds those of the patch; WRITTEN of a patch are written at once. BY_ROW makes the rows of a
    filter a loop. With TURNS, the first and the end of a range, the rows that are read are a loop: turn 0 would read
    what only a patch's first row needs, and no patch needs a turn outside of the range.
    """
    WIDTH: tl.constexpr = (Q + COLS - 1) // COLS
    SPANS: tl.constexpr = (P + ROWS * GAP - 1) // (ROWS * GAP) * GAP
    LAST_P: tl.constexpr = (SPANS // GAP - 1) * (ROWS * GAP) + GAP - 1
    UNITS: tl.constexpr = N * Z * SPANS * WIDTH * (1 if VECTOR == 0 else G // VECTOR)
    K_BLOCKS: tl.constexpr = (K + OUTPUTS - 1) // OUTPUTS
    RAGGED: tl.constexpr = UNITS % PATCHES > 0
    GROUPS: tl.constexpr = 1 if VECTOR == 0 else VECTOR

    # Programs for other channels, which read the same pixels, lie side by side.
    program = tl.program_id(0)
    k_first = 0
    if K_BLOCKS > 1:
        k_first = program % K_BLOCKS * OUTPUTS
        program = program // K_BLOCKS
    lane = tl.arange(0, SPLIT * PATCHES)
    group = lane // PATCHES if SPLIT > 1 else 0
    there, n, g, plane, p, q = _place(
        program, lane % PATCHES if SPLIT > 1 else lane, G, Z, UNITS, PATCHES, WIDTH, SPANS, GAP, ROWS, COLS, VECTOR,
        WIDE,
    )  # fmt: skip
    d = plane * STRIDE_D - FRONT
    h = p * STRIDE_H - TOP
    v = q * STRIDE_W  # the padding is part of the pieces, which begin at multiples of what is read at once
    at = n * X_N + g * (C * X_C) + h * X_H + v * X_W
    if Z > 1 or FRONT != 0:
        at += d * X_D
    if TURNS is not None:
        OUTSIDE: tl.constexpr = (
            TURNS[0] * APART * DILATION_H < TOP
            or LAST_P * STRIDE_H - TOP + (TURNS[1] * APART - 1) * DILATION_H >= H
        )
        _by_turns(
            x + at, z + at if DERIVATIVE != "none" else x, w + (g * W_G + W_FIRST), y, bias, residual, there, n, g,
            plane, h, v, p, q, RAGGED, OUTSIDE, (WIDTH - 1) * COLS * STRIDE_W, H, W, Z, P, Q, R, S, X_C, X_H, X_W,
            W_G, W_R, W_S, Y_N, Y_K, Y_Z, Y_P, Y_Q, DILATION_H, FLIP, BIAS, RESIDUAL, ACTIVATION, DERIVATIVE, GAP,
            APART, ROWS, COLS, PIECES, PLACES, VECTOR, PATCHES, TURNS[0], TURNS[1],
        )  # fmt: skip
    else:
        sums = _over_channels(
            x + at, z + at if DERIVATIVE != "none" else x, w + (g * W_G + W_FIRST), k_first, group, d, h, v, there,
            RAGGED, LAST_P * STRIDE_H - TOP, (WIDTH - 1) * COLS * STRIDE_W, Z,
            C, D, H, W, K, T, R, S, X_C, X_D, X_H, X_W, W_G, W_K, W_C, W_T, W_R, W_S, STRIDE_D, FRONT, TOP,
            DILATION_D, DILATION_H, FLIP, DERIVATIVE, APART, ROWS, COLS, OUTPUTS, PIECES, PLACES, BY_ROW,
            SPLIT, VECTOR, SPLIT * PATCHES,
        )  # fmt: skip
        if SPLIT > 1:
            there, n, g, plane, p, q = _place(
                program, tl.arange(0, PATCHES), G, Z, UNITS, PATCHES, WIDTH, SPANS, GAP, ROWS, COLS, VECTOR, WIDE
            )
        for row in tl.static_range(ROWS):
            h = p + row * GAP
            _write_row(
                y, bias, residual, sums, there & (h < P) if P % (ROWS * GAP) else there, n, g, k_first, plane, h, q, K,
                Z, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q, BIAS, RESIDUAL, ACTIVATION, row * OUTPUTS * COLS * GROUPS, COLS, WRITTEN,
                OUTPUTS, SPLIT, VECTOR,
            )  # fmt: skip
