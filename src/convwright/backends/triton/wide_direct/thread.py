"""What a patch asks of its thread, however many warps there are and however its sums are split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from convwright.backends.triton.sweep import Sweep
from convwright.backends.triton.wide_direct.reading import columns_at_once, reading

_LANES, _LINE_BYTES = 32, 128
_TURN_INSTRUCTIONS = 15  # of a loop over rows, whatever it computes


@dataclass(frozen=True, slots=True)
class Thread:
    """``units`` is how many patches there are of one channel; ``lines_written`` are those of the cache that a warp
    writes to, once for each instruction. Of a step, which is a plane of one input channel or, in a strip, the row that
    a turn reads: ``rows`` that are read, in so many ``pieces`` each, ``columns`` of them kept at a time, ``weights``,
    ``products``, and ``instructions``. What keeps its input has one step, and ``products`` are those of a turn.
    """

    units: int
    lines_written: int
    sums: int
    rows: int
    pieces: int
    columns: int
    weights: int
    products: int
    instructions: int


@lru_cache(maxsize=4096)
def of_patch(sweep: Sweep, rows: int, cols: int, outputs: int, by_row: int | None, vector: int | None) -> Thread:
    """Of one that is written out."""
    _, high, columns = sweep.tracks
    (_, apart), nbytes, groups = sweep.spacing, sweep.read.dtype.nbytes, vector or 1
    taps = 1 if by_row else high.most_taps
    read = reading(columns, cols, 1 if vector else columns_at_once(sweep.read))
    rows_read = (rows - 1) * apart + taps
    weights = taps * columns.most_taps * outputs * groups
    kept = len({place for places in read.places for place in places}) * groups

    written = sweep.written.dtype.nbytes
    if vector:
        lines_written = rows * cols * -(-_LANES * vector * written // _LINE_BYTES)
    else:
        together = gcd(cols, columns_at_once(sweep.written))
        lines_written = rows * outputs * (cols // together) * -(-_LANES * cols * written // _LINE_BYTES)
    products = weights * rows * cols
    for_weights = (weights if nbytes < 4 else weights // groups) * 2
    instructions = rows_read * _row_instructions(sweep, cols, vector) + products + for_weights
    sums = rows * cols * outputs * groups
    units = _units(sweep, rows, cols)
    return Thread(units, lines_written, sums, rows_read, len(read.pieces), kept, weights, products, instructions)


@lru_cache(maxsize=4096)
def of_kept(sweep: Sweep, rows: int, cols: int, outputs: int, turns: int) -> Thread:
    """Of one that keeps what it reads, and in as many turns computes so many output channels each."""
    one, inputs = of_patch(sweep, rows, cols, outputs, None, None), sweep.inputs
    to_read, for_weights = one.rows * _row_instructions(sweep, cols, None), one.weights
    return replace(
        one,
        lines_written=turns * one.lines_written,
        rows=inputs * one.rows,
        columns=inputs * one.rows * one.columns,
        weights=turns * inputs * one.weights,
        products=inputs * one.products,
        instructions=inputs * (to_read + turns * (one.products + for_weights)),
    )


@lru_cache(maxsize=4096)
def of_strip(sweep: Sweep, rows: int, cols: int, vector: int) -> Thread:
    """Of one whose rows that are read are a loop: a turn is like a patch of one row, but what it leaves unfinished are
    sums of more rows, and what the next turn needs is read meanwhile."""
    _, apart = sweep.spacing
    one = of_patch(sweep, 1, cols, 1, None, vector)
    read = apart * (_row_instructions(sweep, cols, vector) + one.columns)
    to_write = one.lines_written + (one.sums if sweep.written.dtype.nbytes < 4 else 0)
    return replace(
        one,
        units=_units(sweep, rows, cols),
        sums=one.sums * -(-sweep.tracks[1].most_taps // apart),
        rows=apart,
        columns=2 * apart * one.columns,
        instructions=read + one.products + to_write + _TURN_INSTRUCTIONS,
    )


def _row_instructions(sweep: Sweep, cols: int, vector: int | None) -> int:
    """To read a row: what lies beyond an edge is masked, zeros for it, and a condition."""
    read, nbytes = reading(sweep.tracks[2], cols, 1 if vector else columns_at_once(sweep.read)), sweep.read.dtype.nbytes
    converted = sum(width for _, width in read.pieces) * (vector or 1) if nbytes < 4 else 0
    return len(read.pieces) * 3 + converted


def _units(sweep: Sweep, rows: int, cols: int) -> int:
    depth, high, columns = sweep.tracks
    gap, _ = sweep.spacing
    return sweep.read.shape[0] * depth.places * -(-high.places // (rows * gap)) * gap * -(-columns.places // cols)
