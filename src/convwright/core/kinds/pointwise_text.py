"""The text form of a pointwise problem: ``pointwise "relu(a + b)" mb32ic64ih56 dt:fp16 tag:nhwc b:c,fp32``.

``dt`` and ``tag`` describe the output, and every operand that says nothing else. An operand's own word names the
dimensions that it has (``c``, ``nc``, ``1`` for a single number, or ``1x64x1x1``), its dtype and how it lies, with
commas between.

>>> from convwright.core.kinds.pointwise import PointwiseProblem
>>> PointwiseProblem.parse('pointwise "a * s" mb2ic3ih4 dt:fp16 s:c,fp32').key
'pointwise "a * s" mb2ic3ih4iw4 dt:fp16 tag:nchw s:c,fp32'
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from convwright.core.dtype import DType
from convwright.core.kinds import expression as tree
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
    words = [f'pointwise "{problem.expression}" {sizes_text(y.shape)} dt:{y.dtype} tag:{tag_text(y)}']
    for name, spec in problem.inputs:
        if said := _operand_text(spec, y):
            words.append(f"{name}:{said}")
    return " ".join(words)


def parse(text: str, make: type[PointwiseProblem]) -> PointwiseProblem:
    """Read the text form, and ``make`` the problem of it."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"a pointwise problem is written like {_EXAMPLE}, got {text!r}")
    expression, shape, options = parse_expression(found[1]), read_sizes(found[2]), read_options(found[3].split())
    y = read_tag(options.pop("tag", "nchw"), shape, DType.parse(options.pop("dt", "fp32")))
    read = tree.names(expression)
    inputs = tuple((name, _read_operand(name, options.pop(name, ""), y)) for name in read)
    no_more(options, "a pointwise problem", f"dt, tag and its operands {', '.join(read)}", text)
    return make(expression, inputs, y)


def _usual(shape: tuple[int, ...], dtype: DType, y: TensorSpec) -> TensorSpec:
    """How an operand lies that says nothing of it."""
    layout = Layout.NCHW if y.layout is Layout.STRIDED else y.layout
    return TensorSpec(shape, dtype, dense_strides(shape, layout))


def _operand_text(spec: TensorSpec, y: TensorSpec) -> str:
    said = [_dims_text(spec.shape, y.shape)] * (spec.shape != y.shape)
    said += [str(spec.dtype)] * (spec.dtype is not y.dtype)
    said += [tag_text(spec)] * (spec != _usual(spec.shape, spec.dtype, y))
    return ",".join(said)


def _dims_text(shape: tuple[int, ...], whole: tuple[int, ...]) -> str:
    letters = LETTERS.get(len(whole))
    if letters is None:
        return by(shape)
    return "".join(letter for letter, size in zip(letters, shape, strict=True) if size != 1) or "1"


def _read_operand(name: str, said: str, y: TensorSpec) -> TensorSpec:
    shape, dtype, tag = y.shape, y.dtype, ""
    for piece in said.split(",") if said else ():
        order = piece.partition("@")[0]
        if "/" in order or order in list(Layout):
            tag = piece
        elif piece in list(DType):
            dtype = DType(piece)
        else:
            shape = _read_dims(name, piece, y.shape)
    return read_tag(tag, shape, dtype) if tag else replace(_usual(shape, dtype, y), dtype=dtype)


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
