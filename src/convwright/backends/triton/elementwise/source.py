"""An expression and the walk through its operands → the source of a Triton kernel."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
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
    reductions,
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
# Functions with an argument that says whether the result must be exact in fp32.
_PRECISE = frozenset({"div", "sqrt", "exp", "tanh", "sigmoid", "silu", "hardsigmoid", "hardswish"})
_IN_TRITON = {"abs": "tl.abs", "rsqrt": "tl.rsqrt", "erf": "tl.erf", "where": "tl.where"}
_DTYPES = {"fp32": "tl.float32", "fp16": "tl.float16", "bf16": "tl.bfloat16"}
_OFFSETS_32_BITS = 2**31


def source(walk: Walk, tile: Tile, *, precise: bool, launch: int = 0) -> str:
    """The source of one kernel; a tile may need several ``launches``. Every size and stride is a literal, so that the
    compiler can simplify divisions and vectorise."""
    pointers = [*(f"p{place}" for place in range(len(walk.reads))), "y", *(["sums"] if tile.parts > 1 else [])]
    lines = [f"{_HEAD}{', '.join(pointers)}, OVERLAPS: tl.constexpr):"]
    body = ["wait_for_the_kernel_ahead(OVERLAPS)", *_places(walk, tile, tile.parts_of(walk, launch))]
    if tile.cuts_rows(walk):
        body += _passes(walk, tile, launch, precise=precise)
    elif isinstance(walk.expression, Operand):
        body += [f"v0 = {_load(walk, tile, 0)}", *_stored(walk, tile)]
    else:
        body += [*_arithmetic(walk, tile, steps(walk.expression), precise=precise), *_stored(walk, tile)]
    return "\n".join([*lines, *(f"    {line}" for line in body)]) + "\n"


def _places(walk: Walk, tile: Tile, parts: int) -> Iterator[str]:
    """The coordinates of a program's elements along each dimension, c0, c1, …, and which elements exist."""
    wide = ".to(tl.int64)" if _is_wide(walk) else ""
    yield f"program = tl.program_id(0){wide}"
    if parts > 1:
        yield f"part = program % {parts}"
        yield f"program = program // {parts}"
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
        if not tile.cuts_rows(walk):
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
    """The coordinates inside a row. A program has the whole row, or elements from ``start`` on in its part."""
    yield f"at = tl.arange(0, {tile.columns})[None, :]"
    if tile.cuts_rows(walk):
        yield f"at = start + at{'.to(tl.int64)' if _is_wide(walk) else ''}"
    if tile.parts > 1:
        yield f"at = part * {tile.part_size(walk)} + at"
    if not tile.fills_rows(walk):
        yield f"in_row = at < {walk.row_size}"
    yield from _divided(walk, walk.outer + 1)


def _divided(walk: Walk, first: int) -> Iterator[str]:
    """The index ``at`` as coordinates along the dimensions from ``first`` on."""
    inner = 1
    for place, dim in reversed([*enumerate(walk.dims)][first:]):
        quotient = "at" if inner == 1 else f"at // {inner}"
        yield f"c{place} = {quotient}" + (f" % {dim.size}" if place > first else "")
        inner *= dim.size


def _load(walk: Walk, tile: Tile, place: int) -> str:
    offset, mask = _where(walk, tile, place)
    return f"tl.load(p{place} + {offset}{f', mask={mask}, other=0' if mask else ''})"


def _where(walk: Walk, tile: Tile, place: int | None) -> tuple[str, str]:
    """The offsets of an operand's elements, and which elements exist. ``place`` None is the output."""
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
    """The name of a dimension's mask; None if all its elements exist."""
    if walk.row and place > walk.outer:
        return None if tile.fills_rows(walk) else "in_row"
    return f"kept{place}" if walk.dims[place].size % _lanes(walk, tile, place) else None


def _lanes(walk: Walk, tile: Tile, place: int) -> int:
    """The number of elements of a dimension that a program has."""
    return {len(walk.dims) - 1: tile.columns, rows_of(walk): tile.rows}.get(place, 1)


def _along(dim: Dim, dim_place: int, place: int | None) -> tuple[list[str], list[str]]:
    """The terms of one dimension in an operand's offset, and the conditions on its elements."""
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
    # The offset must have the shape of the mask.
    is_there = conditions or (step.stride and (dim.size > 1 or step.before))
    return [_times(at, step.stride)] if is_there else [], conditions


def _times(coordinate: str, stride: int) -> str:
    return coordinate if stride == 1 else f"{coordinate} * {stride}"


def _is_wide(walk: Walk) -> bool:
    """Whether an offset needs more than 32 bits."""

    def reached(spec: TensorSpec) -> int:
        return sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True))

    padded = sum(dim.stride * dim.size for dim in walk.dims)  # masked elements are computed too
    count = prod(dim.size for dim in walk.dims)
    return max(*map(reached, walk.reads), reached(walk.y), padded, 2 * count) >= _OFFSETS_32_BITS // 2


def _passes(walk: Walk, tile: Tile, launch: int, *, precise: bool) -> Iterator[str]:
    """A row that is cut is read once per level of reductions, and once for the output. If several programs share a row,
    each of these is a launch, and the launch before has stored its reductions."""
    known = dict[Expression, None]()
    if tile.parts > 1:
        yield f"row = {_row_number(walk)}"
    for number, level in enumerate(walk.levels):
        if number < launch:
            for step in level:
                yield f"{_called(walk, step)} = {_over_lanes(step, _loaded_parts(step, walk, tile), walk, precise)}"
        else:
            yield from _reducing(level, known, walk, tile, precise=precise)
            if tile.parts > 1:
                yield from _stored_parts(level, walk, tile)
                return
            for step in level:
                yield f"{_called(walk, step)} = {_over_lanes(step, _called(walk, step), walk, precise)}"
        known |= dict.fromkeys(level)
    lines = [*_arithmetic(walk, tile, _needed([walk.expression], known), precise=precise), *_stored(walk, tile)]
    yield from lines if walk.is_reduced else _loop([*_in_a_row(walk, tile), *lines], walk, tile)


def _reducing(
    level: Iterable[Apply], known: Container[Expression], walk: Walk, tile: Tile, *, precise: bool
) -> Iterator[str]:
    """The reductions of each lane of a tile, in their variables."""
    body = [*_in_a_row(walk, tile)]
    body += _arithmetic(walk, tile, _needed([step.arguments[0] for step in level], known), precise=precise)
    for step in level:
        called, given = _called(walk, step), _in_row(_called(walk, step.arguments[0]), step, walk, tile)
        yield f"{called} = tl.full([{tile.rows}, {tile.columns}], {_neutral(step)}, tl.float32)"
        body.append(
            f"{called} = " + (f"of.maximum({called}, {given})" if step.operator == "max" else f"{called} + {given}")
        )
    yield from _loop(body, walk, tile)


def _loop(body: Iterable[str], walk: Walk, tile: Tile) -> Iterator[str]:
    """A loop over a program's part of a row."""
    yield f"for start in range(0, {tile.part_size(walk)}, {tile.columns}):"
    yield from (f"    {line}" for line in body)


def _row_number(walk: Walk) -> str:
    """The indices of a tile's rows among all rows."""
    sizes = [dim.size for dim in walk.dims[: walk.outer + 1]]
    return " + ".join(_times(f"c{place}", prod(sizes[place + 1 :])) for place in range(len(sizes)))


def _stored_parts(level: Iterable[Apply], walk: Walk, tile: Tile) -> Iterator[str]:
    mask = _mask(walk, tile, walk.outer)
    for step in level:
        reduced = f"of.row_{'max' if step.operator == 'max' else 'sum'}({_called(walk, step)})"
        yield f"tl.store({_parts(step, walk, tile)} + part, {reduced}{f', mask={mask}' if mask else ''})"


def _loaded_parts(step: Apply, walk: Walk, tile: Tile) -> str:
    mask = _mask(walk, tile, walk.outer)
    where = f"{_parts(step, walk, tile)} + tl.arange(0, {tile.parts})[None, :]"
    return f"tl.load({where}{f', mask={mask}, other=0' if mask else ''})"


def _parts(step: Apply, walk: Walk, tile: Tile) -> str:
    """The offset of a reduction's parts in the workspace."""
    every = reductions(walk.expression)
    return f"sums + (row * {len(every)} + {every.index(step)}) * {tile.parts}"


def _needed(wanted: Iterable[Expression], known: Container[Expression]) -> tuple[Expression, ...]:
    """The steps that lead from known values and operands to ``wanted``."""
    found = dict[Expression, None]()
    for step in wanted:
        if step not in known:
            found |= dict.fromkeys((*_needed(arguments_of(step), known), step))
    return tuple(found)


def _called(walk: Walk, step: Expression) -> str:
    """The variable of a step's value."""
    return f"v{steps(walk.expression).index(step)}"


def _arithmetic(walk: Walk, tile: Tile, order: Iterable[Expression], *, precise: bool) -> Iterator[str]:
    """A line for each step in ``order``, and one to load an operand."""
    read, ones = names(walk.expression), "[1, 1]" if tile.rows else "[1]"
    for step in order:
        called = _called(walk, step)
        given = [_called(walk, argument) for argument in arguments_of(step)]
        if isinstance(step, Operand):
            yield f"{called} = {_load(walk, tile, read.index(step.name))}.to(tl.float32)"
        elif isinstance(step, Constant):
            yield f"{called} = tl.full({ones}, {step.value!r}, tl.float32)"
        elif not is_reduction(step):
            yield f"{called} = {_applied(step, given, walk, precise=precise)}"
        elif walk.row_size == 1:
            yield f"{called} = {given[0]}"
        else:
            yield f"{called} = {_over_lanes(step, _in_row(given[0], step, walk, tile), walk, precise)}"


def _stored(walk: Walk, tile: Tile) -> Iterator[str]:
    """Store the value of the expression, in the shape of a tile."""
    shape = f"[{tile.rows}, {1 if walk.is_reduced else tile.columns}]" if tile.rows else f"[{tile.columns}]"
    yield f"result = tl.broadcast_to({_called(walk, walk.expression)}, {shape})"
    offset, mask = _where(walk, tile, None)
    yield f"tl.store(y + {offset}, result.to(y.dtype.element_ty){f', mask={mask}' if mask else ''})"


def _neutral(step: Apply) -> str:
    """The neutral element of a reduction."""
    return 'float("-inf")' if step.operator == "max" else "0.0"


def _in_row(given: str, step: Apply, walk: Walk, tile: Tile) -> str:
    """The input of a reduction, without lanes that are in no row."""
    return given if tile.fills_rows(walk) else f"tl.where(in_row, {given}, {_neutral(step)})"


def _over_lanes(step: Apply, given: str, walk: Walk, precise: bool) -> str:
    """One value per row of a tile, as a column."""
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
