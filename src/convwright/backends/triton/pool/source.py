"""A pooling problem → the source of a Triton kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from convwright.backends.triton.pool.tile import Tile
from convwright.backends.triton.pool.walk import Walk
from convwright.core.geometry import Axis
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling

NAME = "pool"
_HEAD = f'''"""Made by convwright.backends.triton.pool.source."""

import triton
import triton.language as tl

from convwright.backends.triton.generated import functions as of
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


@triton.jit
def {NAME}(x, y, OVERLAPS: tl.constexpr):'''
_MOST_32_BITS = 2**30
# Up to so many elements of a window are unrolled.
_MOST_UNROLLED = 32


def source(walk: Walk, tile: Tile, *, precise: bool) -> str:
    """The kernel's source. Every size and stride is a literal, so that the compiler can simplify divisions and
    vectorise."""
    problem = walk.problem
    kept = _kept(walk, tile)
    shape = f"[{tile.rows}, {tile.columns}]" if tile.rows else f"[{tile.columns}]"
    neutral = 'float("-inf")' if problem.pooling is Pooling.MAX else "0.0"
    body = ["wait_for_the_kernel_ahead(OVERLAPS)", *_places(walk, tile), *_starts(walk)]
    body += [f"result = tl.full({shape}, {neutral}, tl.float32)", *_window(walk, kept, neutral)]
    if problem.pooling is Pooling.AVG:
        body += [f"result = {_quotient(problem, precise=precise)}"]
    offset = "at" if not tile.rows and walk.is_flat else _terms("c", [dim.stride for dim in walk.dims])
    mask = " & ".join(kept)
    body.append(f"tl.store(y + {offset}, result.to(y.dtype.element_ty){f', mask={mask}' if mask else ''})")
    return "\n".join([_HEAD, *(f"    {line}" for line in body)]) + "\n"


def _places(walk: Walk, tile: Tile) -> Iterator[str]:
    """The coordinates of a program's elements along each dimension, c0, c1, …, and which elements exist."""
    wide = ".to(tl.int64)" if walk.reach >= _MOST_32_BITS else ""
    yield f"program = tl.program_id(0){wide}"
    inner, outermost = 1, next((place for place, dim in enumerate(walk.dims) if dim.size > 1), 0)
    if not tile.rows:
        yield f"at = program * {tile.columns} + tl.arange(0, {tile.columns})"
        if walk.problem.y.numel % tile.columns:
            yield f"kept = at < {walk.problem.y.numel}"
    for place, dim in reversed([*enumerate(walk.dims)]):
        lanes = tile.lanes(walk, place)
        blocks = -(-dim.size // lanes)
        block = "program" if tile.rows else "at"
        block += f" // {inner}" * (inner > 1) + f" % {blocks}" * (place > outermost)
        block = "0" if blocks == 1 and place != outermost else block
        inner *= blocks
        if lanes == 1:
            yield f"c{place} = {block}"
        else:
            along = "[None, :]" if place == len(walk.dims) - 1 else "[:, None]"
            yield f"c{place} = ({block}) * {lanes} + tl.arange(0, {lanes}){along}"
        if tile.rows and dim.size % lanes:
            yield f"kept{place} = c{place} < {dim.size}"


def _kept(walk: Walk, tile: Tile) -> list[str]:
    """The names of the masks of the output's elements."""
    if not tile.rows:
        return ["kept"] if walk.problem.y.numel % tile.columns else []
    return [f"kept{place}" for place, dim in enumerate(walk.dims) if dim.size % tile.lanes(walk, place)]


def _starts(walk: Walk) -> Iterator[str]:
    """The start of windows along each axis, s0, s1, …, and the offsets of their first elements."""
    terms = []
    for place, dim in enumerate(walk.dims):
        if dim.axis is None:
            terms.append(f"c{place} * {dim.step}")
        else:
            axis = walk.problem.axes[dim.axis]
            yield f"s{dim.axis} = c{place} * {axis.stride} - {axis.pad[0]}"
            terms.append(f"s{dim.axis} * {walk.x_strides[dim.axis]}")
    yield f"first = {' + '.join(terms)}"


def _window(walk: Walk, kept: list[str], neutral: str) -> Iterator[str]:
    """Lines that add the elements of a window to the result: unrolled for the innermost axes as far as these are short,
    in a loop over the other axes."""
    axes, steps = walk.problem.axes, walk.x_strides
    split = len(axes)
    while split and prod(axis.taps for axis in axes[split - 1 :]) <= _MOST_UNROLLED:
        split -= 1
    for place, axis in [*enumerate(axes)][split:]:
        for tap in _met(axis):
            if said := _inside(axis, f"s{place}", tap):
                yield f"in{place}_{tap} = {said}"
    indent, base, there = "", "first", list[str]()
    if split:
        yield f"for tap in range({prod(axis.taps for axis in axes[:split])}):"
        indent, inner = "    ", 1
        for place, axis in reversed([*enumerate(axes)][:split]):
            yield f"    t{place} = tap // {inner} % {axis.taps}"
            inner *= axis.taps
            if said := _inside_loop(axis, f"s{place} + t{place} * {axis.dilation}"):
                yield f"    in{place} = {said}"
                there.append(f"in{place}")
        strides = [axis.dilation * step for axis, step in zip(axes[:split], steps, strict=False)]
        yield f"    row = first + {_terms('t', strides)}"
        base = "row"
    for taps in product(*(_met(axis) for axis in axes[split:])):
        offset, masks = 0, [*there, *kept]
        for place, (tap, axis) in enumerate(zip(taps, axes[split:], strict=True), start=split):
            offset += tap * axis.dilation * steps[place]
            masks += [f"in{place}_{tap}"] * bool(_inside(axis, "", tap))
        yield indent + _added(walk.problem, f"{base} + {offset}", masks, neutral)


def _added(problem: PoolProblem, offset: str, masks: list[str], neutral: str) -> str:
    mask = f", mask={' & '.join(masks)}, other={neutral}" if masks else ""
    value = f"tl.load(x + {offset}{mask}).to(tl.float32)"
    if problem.pooling is Pooling.MAX:
        return f"result = of.maximum(result, {value})"
    return f"result += {value}"


def _met(axis: Axis) -> list[int]:
    """The elements of windows that are inside the image for at least one window."""
    firsts = ((tap, tap * axis.dilation - axis.pad[0]) for tap in range(axis.taps))
    return [tap for tap, first in firsts if first < axis.size and (axis.out - 1) * axis.stride + first >= 0]


def _inside(axis: Axis, start: str, tap: int) -> str:
    """The condition that this element of a window is inside the image; empty if it always is."""
    first = tap * axis.dilation
    last = (axis.out - 1) * axis.stride - axis.pad[0] + first
    said = [f"({start} >= {-first})"] * (first < axis.pad[0]) + [f"({start} < {axis.size - first})"] * (
        last >= axis.size
    )
    return " & ".join(said)


def _inside_loop(axis: Axis, at: str) -> str:
    """The same for an element that a loop counts."""
    said = [f"({at} >= 0)"] * (axis.pad[0] > 0) + [f"({at} < {axis.size})"] * (axis.pad[1] > 0)
    return " & ".join(said)


def _quotient(problem: PoolProblem, *, precise: bool) -> str:
    """The average from a sum. Elements are counted if windows differ in their number."""
    known, counted = 1, list[str]()
    for place, axis in enumerate(problem.axes):
        margin = axis.pad[0] if problem.includes_padding else 0
        first, last = (_count(axis, out, margin) for out in (0, axis.out - 1))
        if axis.out == 1 or first == last == axis.taps:
            known *= first
        else:
            end, start = f"tl.minimum(s{place} + {axis.taps}, {axis.size + margin})", f"tl.maximum(s{place}, {-margin})"
            counted.append(f"({end} - {start})")
    if problem.divisor is not None:
        known, counted = problem.divisor, []
    if counted:
        times = " * ".join([str(known)] * (known > 1) + counted)
        return f"of.div(result, ({times}).to(tl.float32), {precise})"
    if known & (known - 1) == 0:
        return f"result * {1 / known!r}"  # a power of two, so it is exact
    return f"of.div(result, {float(known)!r}, {precise})"


def _count(axis: Axis, out: int, margin: int) -> int:
    """The number of counted elements of a window."""
    start = out * axis.stride - axis.pad[0]
    return min(start + axis.taps, axis.size + margin) - max(start, -margin)


def _terms(name: str, strides: Sequence[int]) -> str:
    return " + ".join(f"{name}{place} * {stride}" for place, stride in enumerate(strides))
