"""An expression and the walk through its operands → the source of a Triton kernel."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.elementwise.tile import Tile, rows_of
from convwright.backends.triton.elementwise.walk import Dim, Walk
from convwright.core.kinds.expression import (
    Apply,
    Cast,
    Constant,
    Expression,
    Operand,
    arguments_of,
    is_reduction,
    names,
    steps,
)
from convwright.core.kinds.operators import OPERATORS
from convwright.core.tensor_spec import TensorSpec

NAME = "elementwise"
_HEAD = f'''"""Made by convwright.backends.triton.elementwise.source."""

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated
from convwright.backends.triton.generated import functions as of
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


@triton.jit
def {NAME}('''
# Functions that take whether their result has to be as exact as fp32 is.
_PRECISE = frozenset({"div", "sqrt", "exp", "tanh", "sigmoid", "silu", "hardsigmoid", "hardswish"})
_IN_TRITON = {"abs": "tl.abs", "rsqrt": "tl.rsqrt", "erf": "tl.erf", "where": "tl.where"}
_DTYPES = {"fp32": "tl.float32", "fp16": "tl.float16", "bf16": "tl.bfloat16"}
_OFFSETS_32_BITS = 2**31


def source(walk: Walk, tile: Tile, *, precise: bool) -> str:
    """The kernel's source: every size and stride is a number in it, which the compiler divides and vectorises by."""
    reads = [f"p{place}" for place in range(len(walk.reads))]
    lines = [f"{_HEAD}{', '.join(reads)}, y, OVERLAPS: tl.constexpr):"]
    body = ["wait_for_the_kernel_ahead(OVERLAPS)", *_places(walk, tile)]
    body += [f"x{place} = {_load(walk, tile, place)}" for place in range(len(walk.reads))]
    body += _arithmetic(walk, tile, precise=precise)
    offset, mask = _where(walk, tile, None)
    body.append(f"tl.store(y + {offset}, result.to(y.dtype.element_ty){f', mask={mask}' if mask else ''})")
    return "\n".join([*lines, *(f"    {line}" for line in body)]) + "\n"


def _places(walk: Walk, tile: Tile) -> Iterator[str]:
    """The coordinates of a program's elements along each dimension, c0, c1, …, and where there are such."""
    wide = ".to(tl.int64)" if _is_wide(walk) else ""
    yield f"program = tl.program_id(0){wide}"
    last, inner = len(walk.dims) - 1, 1
    if not tile.rows:
        yield f"at = program * {tile.columns} + tl.arange(0, {tile.columns})"
        if walk.y.numel % tile.columns:
            yield f"kept = at < {walk.y.numel}"
        yield from _divided(walk, 0)
        return
    rows = rows_of(walk)
    lanes = {last: "[None, :]", rows: "[:, None]"}
    order = [last, rows, *(place for place in reversed(range(last)) if place != rows)]
    if walk.row:
        yield from _in_a_row(walk, tile)
        order = [*reversed(range(rows + 1))]
    for place in order:
        dim, size = walk.dims[place], _lanes(walk, tile, place)
        blocks = -(-dim.size // size)
        block = "program" if inner == 1 else f"program // {inner}"
        block += f" % {blocks}" if place != order[-1] else ""
        inner *= blocks
        if place in lanes:
            yield f"c{place} = ({block}) * {size} + tl.arange(0, {size}){lanes[place]}"
        else:
            yield f"c{place} = {block}"
        if dim.size % size:
            yield f"kept{place} = c{place} < {dim.size}"


def _in_a_row(walk: Walk, tile: Tile) -> Iterator[str]:
    """The coordinates inside a row, which a program has as a whole."""
    yield f"at = tl.arange(0, {tile.columns})[None, :]"
    if walk.row_size != tile.columns:
        yield f"in_row = at < {walk.row_size}"
    yield from _divided(walk, walk.outer + 1)


def _divided(walk: Walk, first: int) -> Iterator[str]:
    """What ``at`` counts, as coordinates along the dimensions from ``first`` on."""
    inner = 1
    for place, dim in reversed([*enumerate(walk.dims)][first:]):
        quotient = "at" if inner == 1 else f"at // {inner}"
        yield f"c{place} = {quotient}" + (f" % {dim.size}" if place > first else "")
        inner *= dim.size


def _load(walk: Walk, tile: Tile, place: int) -> str:
    offset, mask = _where(walk, tile, place)
    return f"tl.load(p{place} + {offset}{f', mask={mask}, other=0' if mask else ''})"


def _where(walk: Walk, tile: Tile, place: int | None) -> tuple[str, str]:
    """Where an operand's elements lie, and which of them there are; ``place`` None is the output."""
    if not tile.rows and walk.is_flat(place):
        return "at", "kept" if walk.y.numel % tile.columns else ""
    terms, there = [], list[str]()
    if not tile.rows and walk.y.numel % tile.columns:
        there.append("kept")
    for dim_place, dim in enumerate(walk.dims):
        term, conditions = _along(dim, dim_place, place)
        if walk.row and place is None and dim_place == walk.outer:
            term = term or [f"c{dim_place}"]  # a single row, whose result has the shape of a tile
        terms += term
        there += conditions
        mask = _mask(walk, tile, dim_place) if tile.rows and (term or conditions) else None
        if mask is not None and mask not in there:
            there.append(mask)
    if not terms and there == ["kept"]:
        there = []  # a single number, which every program reads
    return " + ".join(terms) or "0", " & ".join(f"({each})" for each in there)


def _mask(walk: Walk, tile: Tile, place: int) -> str | None:
    """The name of what says which elements there are along a dimension; None where there are all."""
    if walk.row and place > walk.outer:
        return "in_row" if walk.row_size != tile.columns else None
    return f"kept{place}" if walk.dims[place].size % _lanes(walk, tile, place) else None


def _lanes(walk: Walk, tile: Tile, place: int) -> int:
    """How many elements of a dimension a program has."""
    return {len(walk.dims) - 1: tile.columns, rows_of(walk): tile.rows}.get(place, 1)


def _along(dim: Dim, dim_place: int, place: int | None) -> tuple[list[str], list[str]]:
    """What an operand's offset has of one dimension, and which of its elements there are."""
    coordinate = f"c{dim_place}"
    if place is None:
        return [_times(coordinate, dim.stride)] if dim.size > 1 and dim.stride else [], []
    step = dim.steps[place]
    at = coordinate if not step.before else f"({coordinate} - {step.before})".replace("- -", "+ ")
    conditions = []
    if step.size is not None:
        if step.before > 0:
            conditions.append(f"{coordinate} >= {step.before}")
        if step.before + step.size < dim.size:
            conditions.append(f"{coordinate} < {step.before + step.size}")
    # What a mask says of a dimension the offset has to have the shape for.
    is_there = conditions or (step.stride and (dim.size > 1 or step.before))
    return [_times(at, step.stride)] if is_there else [], conditions


def _times(coordinate: str, stride: int) -> str:
    return coordinate if stride == 1 else f"{coordinate} * {stride}"


def _is_wide(walk: Walk) -> bool:
    """Whether an offset takes more than 32 bits."""

    def reached(spec: TensorSpec) -> int:
        return sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True))

    padded = sum(dim.stride * dim.size for dim in walk.dims)  # also what a mask leaves out is computed
    count = prod(dim.size for dim in walk.dims)
    return max(*map(reached, walk.reads), reached(walk.y), padded, 2 * count) >= _OFFSETS_32_BITS // 2


def _arithmetic(walk: Walk, tile: Tile, *, precise: bool) -> Iterator[str]:
    """A line for each step of the expression."""
    is_reduced = walk.row and not any(dim.stride for dim in walk.dims[walk.outer + 1 :])
    shape = f"[{tile.rows}, {1 if is_reduced else tile.columns}]" if tile.rows else f"[{tile.columns}]"
    if isinstance(walk.expression, Operand):
        yield f"result = tl.broadcast_to(x0, {shape})"
        return
    order, read = steps(walk.expression), names(walk.expression)
    called = {step: f"v{place}" for place, step in enumerate(order)}
    ones = "[1, 1]" if tile.rows else "[1]"
    for step in order:
        given = [called[argument] for argument in arguments_of(step)]
        if isinstance(step, Operand):
            yield f"{called[step]} = x{read.index(step.name)}.to(tl.float32)"
        elif isinstance(step, Constant):
            yield f"{called[step]} = tl.full({ones}, {step.value!r}, tl.float32)"
        else:
            made = _reduced(step, given[0], walk, tile, precise) if is_reduction(step) else None
            yield f"{called[step]} = {made or _applied(step, given, walk, precise=precise)}"
    yield f"result = tl.broadcast_to({called[walk.expression]}, {shape})"


def _reduced(step: Apply, given: str, walk: Walk, tile: Tile, precise: bool) -> str:
    """One value for each row, in a column of its own."""
    if walk.row_size == 1:
        return given
    if tile.columns != walk.row_size:
        neutral = 'float("-inf")' if step.operator == "max" else "0.0"
        given = f"tl.where(in_row, {given}, {neutral})"
    if step.operator == "mean":
        return f"of.div(of.row_sum({given}), {float(walk.row_size)!r}, {precise})"
    return f"of.row_{step.operator}({given})"


def _applied(step: Expression, given: list[str], walk: Walk, *, precise: bool) -> str:
    if isinstance(step, Cast):
        return given[0] if step.dtype == "fp32" else f"{given[0]}.to({_DTYPES[step.dtype]}).to(tl.float32)"
    assert isinstance(step, Apply)
    operator = OPERATORS[step.operator]
    if step.operator == "gelu":
        return f"activated({given[0]}, 'gelu', {'tl.float32' if precise else 'tl.float16'})"
    if step.operator in _PRECISE:
        return f"of.{step.operator}({', '.join(given)}, {precise})"
    if operator.symbol is not None:
        return f"-{given[0]}" if operator.arity == 1 else f"{given[0]} {operator.symbol} {given[1]}"
    return f"{_IN_TRITON.get(step.operator, f'of.{step.operator}')}({', '.join(given)})"
