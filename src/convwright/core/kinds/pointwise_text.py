"""The text form of a pointwise problem: ``pointwise "relu(a + b)" mb32ic64ih56 dt:fp16 tag:nhwc b:c,fp32``.

``dt`` and ``tag`` describe the output and are the defaults of every operand. An operand's own word names its dimensions
(``c``, ``nc``, ``1`` for a single number, or ``1x64x1x1``), its dtype and its layout, separated by commas. ``row:hw``
names the dimensions of reductions, by default the last one; ``row:1,2`` if dimensions have no names. ``groups:8``
divides the first of them into eight parts, each with rows of its own. ``y:nc`` is an output with one element for each
row.

>>> from convwright.core.kinds.pointwise import PointwiseProblem
>>> PointwiseProblem.parse('pointwise "a * s" mb2ic3ih4 dt:fp16 s:c,fp32').key
'pointwise "a * s" mb2ic3ih4iw4 dt:fp16 tag:nchw s:c,fp32'
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from convwright.core.dtype import DType
from convwright.core.kinds import expression as tree
from convwright.core.kinds.expression import Expression
from convwright.core.kinds.expression_text import parse as parse_expression
from convwright.core.kinds.sizes import LETTERS, no_more, read_options, read_sizes, read_tag, sizes_text, tag_text
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.errors import BadInput
from convwright.naming import by

if TYPE_CHECKING:
    from convwright.core.kinds.pointwise import PointwiseProblem

_FORM = re.compile(r'pointwise\s+"([^"]*)"\s+(\S+)(.*)', re.DOTALL)
_EXAMPLE = 'pointwise "relu(a + b)" mb32ic64ih56'
_SHAPE = re.compile(r"\d+(x\d+)*")


def full(problem: PointwiseProblem) -> str:
    """The full text of ``problem``; ``parse`` gives the same problem back."""
    y = problem.y
    words = [f'pointwise "{problem.expression}" {sizes_text(problem.shape)} dt:{y.dtype} tag:{tag_text(y)}']
    if problem.row:
        words.append(f"row:{_row_text(problem.row, len(y.shape))}")
    if problem.groups > 1:
        words.append(f"groups:{problem.groups}")
    if problem.is_reduced:
        words.append(f"y:{_dims_text(y.shape, problem.shape)}")
    usual = _Usual(problem.shape, y.dtype, Layout.NCHW if y.layout is Layout.STRIDED else y.layout)
    for name, spec in problem.inputs:
        if said := _operand_text(spec, usual):
            words.append(f"{name}:{said}")
    return " ".join(words)


def parse(text: str, make: type[PointwiseProblem]) -> PointwiseProblem:
    """Read the text form and build the problem by ``make``."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"a pointwise problem is written like {_EXAMPLE}, got {text!r}")
    expression, shape, options = parse_expression(found[1]), read_sizes(found[2]), read_options(found[3].split())
    row = _read_row(options.pop("row", None), expression, len(shape))
    groups = _read_groups(options.pop("groups", "1")) if row else 1
    y_shape = _read_dims("y", options.pop("y"), shape) if row and "y" in options else shape
    tag = options.pop("tag", "nchw")
    y = read_tag(tag, y_shape, DType.parse(options.pop("dt", "fp32")))
    # A reduced output may be dense in both layouts, so the word decides.
    usual = _Usual(shape, y.dtype, Layout.NHWC if tag.startswith(Layout.NHWC) else Layout.NCHW)
    read = tree.names(expression)
    inputs = tuple((name, _read_operand(name, options.pop(name, ""), usual)) for name in read)
    reducing = ", row, groups, y" * bool(row)
    no_more(options, "a pointwise problem", f"dt, tag{reducing} and its operands {', '.join(read)}", text)
    return make(expression, inputs, y, row, groups)


def _row_text(row: tuple[int, ...], rank: int) -> str:
    letters = LETTERS.get(rank)
    return ",".join(map(str, row)) if letters is None else "".join(letters[dim] for dim in row)


def _read_row(said: str | None, expression: Expression, rank: int) -> tuple[int, ...]:
    """The dimensions of a row: by default the last one, and none if nothing reduces."""
    if said is None:
        return (rank - 1,) if tree.reductions(expression) else ()
    letters = LETTERS.get(rank)
    names = [*letters] if letters else [str(dim) for dim in range(rank)]
    given = [*said] if letters else said.split(",")
    if not {*given} <= {*names}:
        raise BadInput(f"`row` takes some of {', '.join(names)}, got {said!r}")
    return tuple(names.index(name) for name in given)


def _read_groups(said: str) -> int:
    if not said.isdecimal():
        raise BadInput(f"`groups` takes a whole number, got {said!r}")
    return int(said)


class _Usual(NamedTuple):
    """The defaults for an operand."""

    shape: tuple[int, ...]
    dtype: DType
    layout: Layout

    def spec(self, shape: tuple[int, ...], dtype: DType) -> TensorSpec:
        """The spec for another shape and dtype in the default layout."""
        return TensorSpec(shape, dtype, dense_strides(shape, self.layout))


def _operand_text(spec: TensorSpec, usual: _Usual) -> str:
    said = [_dims_text(spec.shape, usual.shape)] * (spec.shape != usual.shape)
    said += [str(spec.dtype)] * (spec.dtype is not usual.dtype)
    said += [tag_text(spec)] * (spec != usual.spec(spec.shape, spec.dtype))
    return ",".join(said)


def _dims_text(shape: tuple[int, ...], whole: tuple[int, ...]) -> str:
    letters = LETTERS.get(len(whole))
    if letters is None:
        return by(shape)
    return "".join(letter for letter, size in zip(letters, shape, strict=True) if size != 1) or "1"


def _read_operand(name: str, said: str, usual: _Usual) -> TensorSpec:
    shape, dtype, tag = usual.shape, usual.dtype, ""
    for piece in said.split(",") if said else ():
        order = piece.partition("@")[0]
        if "/" in order or order in list(Layout):
            tag = piece
        elif piece in list(DType):
            dtype = DType(piece)
        else:
            shape = _read_dims(name, piece, usual.shape)
    return read_tag(tag, shape, dtype) if tag else usual.spec(shape, dtype)


def _read_dims(name: str, piece: str, whole: tuple[int, ...]) -> tuple[int, ...]:
    letters = LETTERS.get(len(whole), "")
    if piece == "1":
        return (1,) * len(whole)
    if _SHAPE.fullmatch(piece):
        return read_sizes(piece)
    if not set(piece) <= set(letters) or len(set(piece)) != len(piece):
        named = f"some of {letters}, 1, " if letters else ""
        raise BadInput(f"`{name}` takes {named}sizes such as 1x64x1x1, a dtype, a layout or strides, got {piece!r}")
    return tuple(size if letter in piece else 1 for letter, size in zip(letters, whole, strict=True))
