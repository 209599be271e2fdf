"""The kernel that adds up the parts of a weight's gradient, and of a bias's behind it."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weight_at(
    k, tap, c, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr,
    W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
):  # fmt: skip
    """Where an element of the weight's gradient lies."""
    lying = T * R * S - 1 - tap if FLIP else tap
    r = lying // S
    if T > 1:
        return k * W_K + c * W_C + (r // R * W_T + r % R * W_R + lying % S * W_S)
    return k * W_K + c * W_C + (r * W_R + lying % S * W_S)


# fmt: off
@triton.jit
def sum_of_parts(
    sums, dw, db, C: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    PARTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WITH_BIAS: tl.constexpr, TAPS_FIRST: tl.constexpr,
):
    # fmt: on
    """dw = the sum of ``sums``, PARTS K T R S C, over its parts, always in one order, rounded once. WITH_BIAS each part
    has K sums more, of which db is the sum; otherwise db is None.

    ROWS parts are read at a time, and what is read of each of them added to sums of their own until the end. A
    program's numbers follow one another as they do in the parts or, with TAPS_FIRST, as in most weights, with the taps
    of a channel side by side: it then writes whole lines, and reads runs.
    """
    ROW: tl.constexpr = T * R * S * C
    SIZE: tl.constexpr = K * ROW
    WHOLE: tl.constexpr = SIZE + K if WITH_BIAS else SIZE
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = place < WHOLE
    k = place // ROW
    of_k = place % ROW
    if TAPS_FIRST:
        tap = of_k % (T * R * S)
        c = of_k // (T * R * S)
        at = k * ROW + tap * C + c
        if WITH_BIAS:
            at = tl.where(place < SIZE, at, place)
    else:
        tap = of_k // C
        c = of_k % C
        at = place
    row = tl.arange(0, ROWS)
    totals = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in tl.range(0, PARTS, ROWS):
        part = first + row
        sums_at = sums + (part.to(tl.int64)[:, None] * WHOLE + at[None, :])
        totals += tl.load(sums_at, mask=(part < PARTS)[:, None] & kept[None, :], other=0.0)
    total = tl.sum(totals, axis=0)
    to = weight_at(k, tap, c, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
    if WITH_BIAS:
        tl.store(db + (place - SIZE), total.to(db.dtype.element_ty), mask=kept & (place >= SIZE))
        kept = place < SIZE
    tl.store(dw + to, total.to(dw.dtype.element_ty), mask=kept)
