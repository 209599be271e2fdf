"""What a thread computes where its patch is a strip of many rows, and those that are read are a loop.

Each turn of it takes what it reads into the sums of all rows of the output that this bears on, and writes the one that
is done. What is written out is a turn and not all products of the patch, which takes the compiler a tenth of the time;
the kernel takes a little longer.
"""
# mypy: disable-error-code="assignment,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.wide_direct.rows import parted, row_read, weights_read, write_row


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
    """What a turn reads: APART rows, the ``first`` of which lies so many dilations behind ``h``; OUTSIDE says whether
    some of a patch's may lie beyond the image."""
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
    """Sum up and write strips of ROWS rows, of VECTOR groups with one channel each, in the turns from FIRST to END."""
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
    # What is read no more bears on the last rows.
    for late in tl.static_range(ROWS + UNDER_WAY - END):
        row = p + (END - UNDER_WAY + late) * GAP
        write_row(
            y, bias, residual, sums, there & (row < P), n, g, 0, plane, row, q, 1, Z, Q, Y_N, Y_K, Y_Z, Y_P, Y_Q,
            BIAS, RESIDUAL, ACTIVATION, late * EACH, COLS, VECTOR, 1, 1, VECTOR,
        )  # fmt: skip
