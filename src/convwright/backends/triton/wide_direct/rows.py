"""Reading rows of an image and weights, and storing rows of a result, for one thread; strips of such rows."""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated, derived
from convwright.backends.triton.loading import loaded


@triton.jit
def parted(value, WIDTH: tl.constexpr):
    """The columns of a tensor, in order. Each thread holds a row of it, so no data moves."""
    columns = ()
    if WIDTH == 1:
        columns = (tl.reshape(value, (value.shape[0],)),)
    elif WIDTH == 2:
        columns = tl.split(value)
    else:
        even, odd = tl.split(tl.reshape(value, (value.shape[0], WIDTH // 2, 2)))
        evens = parted(even, WIDTH // 2)
        odds = parted(odd, WIDTH // 2)
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
    """WIDTH columns of one row, FIRST columns after the patch's first, with zeros outside the image: each a vector over
    lanes or, for VECTOR groups, a matrix. ``v`` is the column of the image where the patch begins, at most LAST_V."""
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
    return parted(value, WIDTH if VECTOR == 0 else VECTOR)


# fmt: off
@triton.jit
def row_read(
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
def row_inside(
    at, z_at, h, v, there, RAGGED: tl.constexpr, ABOVE: tl.constexpr, BELOW: tl.constexpr, H: tl.constexpr,
    PIECES: tl.constexpr, W: tl.constexpr, LAST_V: tl.constexpr, X_C: tl.constexpr, X_W: tl.constexpr,
    VECTOR: tl.constexpr, DERIVATIVE: tl.constexpr,
):
    # fmt: on
    """All columns that the patch's taps read of row ``h``, which for some patches is ABOVE or BELOW the image."""
    if ABOVE:
        there = there & (h >= 0)
    if BELOW:
        there = there & (h < H)
    return row_read(at, z_at, v, there, RAGGED or ABOVE or BELOW, PIECES, W, LAST_V, X_C, X_W, VECTOR, DERIVATIVE)


# fmt: off
@triton.jit
def weights_read(
    w, k_first, there, R: tl.constexpr, S: tl.constexpr, K: tl.constexpr, W_G: tl.constexpr,
    W_K: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr, OUTPUTS: tl.constexpr,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr,
):
    # fmt: on
    """Weights of one plane of one input channel, (r, s, k, group): scalars, or one per lane if lanes have different
    channels or groups."""
    taps = ()
    for r in tl.static_range(R):
        for s in tl.static_range(S):
            tap = w + ((R - 1 - r if FLIP else r) * W_R + (S - 1 - s if FLIP else s) * W_S)
            for out in tl.static_range(OUTPUTS):
                # After the last channel, that channel is read again.
                at = tap + (tl.minimum(k_first + out, K - 1) if K % OUTPUTS else k_first + out) * W_K
                if VECTOR > 0:
                    weights = tl.load(tl.expand_dims(at, 1) + tl.expand_dims(tl.arange(0, VECTOR) * W_G, 0))
                    taps += parted(weights.to(tl.float32), VECTOR)
                elif SPLIT > 1:
                    taps += (tl.load(at, mask=there, other=0.0).to(tl.float32),)
                else:
                    taps += (tl.load(at).to(tl.float32),)
    return taps


# fmt: off
@triton.jit
def write_row(
    y, bias, residual, sums, there, n, g, k_first, plane, h, q,
    K: tl.constexpr, Z: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_K: tl.constexpr, Y_Z: tl.constexpr, Y_P: tl.constexpr, Y_Q: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    FIRST: tl.constexpr, COLS: tl.constexpr, WRITTEN: tl.constexpr, OUTPUTS: tl.constexpr,
    SPLIT: tl.constexpr, VECTOR: tl.constexpr,
):
    # fmt: on
    """The patches' results of row ``h``, from ``sums`` FIRST on, with WRITTEN adjacent columns or groups per store."""
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
            tl.store(y + at, activated(total, ACTIVATION, y.dtype.element_ty).to(y.dtype.element_ty), mask=kept)


@triton.jit
def _total(sums, SPLIT: tl.constexpr):
    """The sums of all groups of lanes, added."""
    return tl.sum(tl.reshape(sums, (SPLIT, sums.shape[0] // SPLIT)), axis=0) if SPLIT > 1 else sums


@triton.jit
def _bias(bias, k, VECTOR: tl.constexpr):
    """One number, or the numbers of VECTOR groups."""
    if VECTOR > 0:
        value = tl.load(bias + tl.expand_dims(k, 1) + tl.expand_dims(tl.arange(0, VECTOR), 0))
    else:
        value = tl.load(bias + k)
    return value.to(tl.float32)


# The work of a thread whose patch is a strip of many rows, with a loop over input rows. Each turn adds its input to the
# sums of all output rows that it affects, and stores the row that is done. Only one turn is unrolled, not all products
# of the patch, which compiles in a tenth of the time; the kernel is slightly slower.

# fmt: off
@triton.jit
def _weights_across(
    w, R: tl.constexpr, S: tl.constexpr, W_G: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    VECTOR: tl.constexpr, LANES: tl.constexpr,
):
    # fmt: on
    """The weights of each lane's VECTOR groups, (r, s, group), if the taps of a group are contiguous: lanes read across
    groups and exchange values, since reading only its own weights would cost each lane a cache line per tap."""
    WIDTH: tl.constexpr = triton.next_power_of_2(R * S)
    tap = tl.arange(0, WIDTH)
    places = tl.expand_dims(tap * W_S if W_R == S * W_S else tap // S * W_R + tap % S * W_S, 0)
    groups = tl.expand_dims(w, 1) + tl.expand_dims(tl.arange(0, VECTOR) * W_G, 0)
    at = tl.expand_dims(groups, 2) + tl.expand_dims(places, 0)
    whole = tl.load(at, mask=tl.expand_dims(tl.expand_dims(tap < R * S, 0), 0), other=0.0)
    columns = parted(tl.reshape(whole, (LANES, VECTOR * WIDTH)), VECTOR * WIDTH)
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
    """The input of a turn: APART rows, ``first`` dilations after ``h``. OUTSIDE: some of them may be outside the image.
    """
    columns = ()
    for row in tl.static_range(APART):
        behind = (first + row) * DILATION_H
        inside = there
        if OUTSIDE:
            inside = inside & (h + behind >= 0) & (h + behind < H)
        at = behind * X_H
        columns += row_read(
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
    """The sums of all unfinished rows, the oldest first, (row, column, group), plus the APART rows that a turn has
    read. The sums of the youngest row begin here."""
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
def write_strips(
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
    """Sum and store strips of ROWS rows, of VECTOR groups with one channel each, in the turns from FIRST to END."""
    UNDER_WAY: tl.constexpr = (R + APART - 1) // APART - 1  # rows whose sums a turn leaves unfinished
    EACH: tl.constexpr = COLS * VECTOR
    if W_G > 1:
        taps = _weights_across(w, R, S, W_G, W_R, W_S, FLIP, VECTOR, LANES)
    else:
        taps = weights_read(w, 0, there, R, S, 1, W_G, 0, W_R, W_S, FLIP, 1, 1, VECTOR)
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
        write_row(
            y, bias, residual, all_sums, there & (turn >= UNDER_WAY) & (row < P), n, g, 0, plane, row, q, 1, Z, Q, Y_N,
            Y_K, Y_Z, Y_P, Y_Q, BIAS, RESIDUAL, ACTIVATION, 0, COLS, VECTOR, 1, 1, VECTOR,
        )  # fmt: skip
        sums = ()
        for place in tl.static_range(UNDER_WAY * EACH):
            sums += (all_sums[EACH + place],)
    # The last rows need no more input.
    for late in tl.static_range(ROWS + UNDER_WAY - END):
        row = p + (END - UNDER_WAY + late) * GAP
        write_row(
            y, bias, residual, sums, there & (row < P), n, g, 0, plane, row, q, 1, Z, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q,
            BIAS, RESIDUAL, ACTIVATION, late * EACH, COLS, VECTOR, 1, 1, VECTOR,
        )  # fmt: skip
