"""The kernels that add the parts of a weight gradient, and of a bias gradient after it."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


@triton.jit
def weight_at(
    k, tap, c, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr, W_K: tl.constexpr, W_C: tl.constexpr,
    W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
):  # fmt: skip
    """The offset of an element of the weight gradient."""
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
    PARTS: tl.constexpr, ROWS: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr, WITH_BIAS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    # fmt: on
    """dw = the sum of ``sums``, PARTS K T R S C, over its parts, always in the same order, rounded once. WITH_BIAS,
    each part has K more sums, whose sum is db; otherwise db is None.

    ROWS parts are read at a time, with AHEAD loads in flight. Each row is added to its own sums until the end.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    ROW: tl.constexpr = T * R * S * C
    SIZE: tl.constexpr = K * ROW
    WHOLE: tl.constexpr = SIZE + K if WITH_BIAS else SIZE
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = place < WHOLE
    row = tl.arange(0, ROWS)
    totals = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in tl.range(0, PARTS, ROWS * AHEAD):
        for turn in tl.static_range(AHEAD):
            part = first + turn * ROWS + row
            at = part.to(tl.int64)[:, None] * WHOLE + place[None, :]
            totals += tl.load(sums + at, mask=(part < PARTS)[:, None] & kept[None, :], other=0.0)
    total = tl.sum(totals, axis=0)
    of_k = place % ROW
    to = weight_at(place // ROW, of_k // C, of_k % C, T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
    if WITH_BIAS:
        tl.store(db + (place - SIZE), total.to(db.dtype.element_ty), mask=kept & (place >= SIZE))
        kept = place < SIZE
    tl.store(dw + to, total.to(dw.dtype.element_ty), mask=kept)


# fmt: off
@triton.jit
def turned_sum_of_parts(
    sums, dw, C: tl.constexpr, K: tl.constexpr, T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    W_K: tl.constexpr, W_C: tl.constexpr, W_T: tl.constexpr, W_R: tl.constexpr, W_S: tl.constexpr, FLIP: tl.constexpr,
    PARTS: tl.constexpr, AHEAD: tl.constexpr, TAPS: tl.constexpr, BC: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """The same for a weight whose taps are contiguous per channel, while in parts the channels of a tap are contiguous.
    A program has BC channels with all taps, at most TAPS, so it reads and writes whole cache lines."""
    wait_for_the_kernel_ahead(OVERLAPS)
    ROW: tl.constexpr = T * R * S * C
    BLOCKS: tl.constexpr = (C + BC - 1) // BC
    k = tl.program_id(0) // BLOCKS
    c = tl.program_id(0) % BLOCKS * BC + tl.arange(0, BC)
    tap = tl.arange(0, TAPS)
    at = k * ROW + tap[:, None] * C + c[None, :]
    kept = (tap < T * R * S)[:, None] & (c < C)[None, :]
    total = tl.zeros((TAPS, BC), tl.float32)
    for first in tl.range(0, PARTS, AHEAD):
        for turn in tl.static_range(AHEAD):
            part = first + turn
            there = kept & (part < PARTS) if PARTS % AHEAD else kept
            total += tl.load(sums + (tl.cast(part, tl.int64) * (K * ROW) + at), mask=there, other=0.0)
    to = weight_at(k, tap[:, None], c[None, :], T, R, S, W_K, W_C, W_T, W_R, W_S, FLIP)
    tl.store(dw + tl.trans(to), tl.trans(total).to(dw.dtype.element_ty), mask=tl.trans(kept))
