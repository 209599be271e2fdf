"""The text form of a linear problem: ``linear mb32ic512oc1000 dt:fp16 tag:x=row,w=col,y=row ep:bias+relu``.

``row`` is a row-major matrix, as in PyTorch, ``col`` a column-major one; others have strides.

>>> from convwright.core.kinds.linear import LinearProblem
>>> LinearProblem.parse("linear ic512oc1000mb32").key
'linear mb32ic512oc1000 dt:fp32 tag:row ep:none'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.kinds.sizes import named_sizes, no_more, read_options, read_tag, tag_text
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput

if TYPE_CHECKING:
    from convwright.core.kinds.linear import LinearProblem

_EXAMPLE = "linear mb32ic512oc1000"
_ROW, _COLUMN = "row", "col"


def full(problem: LinearProblem) -> str:
    """The full text of ``problem``; ``parse`` gives the same problem back."""
    tags = {name: _tag(spec) for name, spec in (("x", problem.x), ("w", problem.w), ("y", problem.y))}
    same = len(set(tags.values())) == 1
    tag = tags["x"] if same else ",".join(f"{name}={tag}" for name, tag in tags.items())
    sizes = f"mb{problem.rows}ic{problem.inputs}oc{problem.width}"
    return f"linear {sizes} dt:{problem.dtype} tag:{tag} ep:{problem.epilogue}"


def parse(text: str, make: type[LinearProblem]) -> LinearProblem:
    """Read the text form and build the problem by ``make``."""
    kind, *words = text.split()
    if kind != "linear" or not words:
        raise BadInput(f"a linear problem is written like {_EXAMPLE}, got {text!r}")
    sizes, options = named_sizes(words[0], ("mb", "ic", "oc"), "mb32ic512oc1000"), read_options(words[1:])
    for name in ("ic", "oc"):
        if name not in sizes:
            raise BadInput(f"{name!r} is missing in {words[0]!r}")
    rows, inputs, outputs = sizes.get("mb", 1), sizes["ic"], sizes["oc"]
    shapes = {"x": (rows, inputs), "w": (outputs, inputs), "y": (rows, outputs)}
    dtype, tags = DType.parse(options.pop("dt", "fp32")), _tags(options.pop("tag", _ROW))
    specs = {name: _read(tags[name], shape, dtype) for name, shape in shapes.items()}
    epilogue = Epilogue.parse(options.pop("ep", "none"))
    no_more(options, "a linear problem", "dt, tag and ep", text)
    return make(**specs, epilogue=epilogue)


def _tag(spec: TensorSpec) -> str:
    """The layout of a matrix as text."""
    order, at, alignment = tag_text(spec).partition("@")
    if order == Layout.NCHW:
        order = _ROW
    elif spec.strides == (1, spec.shape[0]):
        order = _COLUMN
    return order + at + alignment


def _tags(text: str) -> dict[str, str]:
    if "=" not in text:
        return dict.fromkeys("xwy", text)
    parts = [part.partition("=")[::2] for part in text.split(",")]
    if sorted(name for name, _ in parts) != ["w", "x", "y"]:
        raise BadInput(f"`tag` must name x, w and y once each, for example tag:x=row,w=col,y=row, got {text!r}")
    return dict(parts)


def _read(tag: str, shape: tuple[int, ...], dtype: DType) -> TensorSpec:
    order, at, alignment = tag.partition("@")
    order = {_ROW: Layout.NCHW, _COLUMN: f"1/{shape[0]}"}.get(order, order)
    return read_tag(order + at + alignment, shape, dtype)
