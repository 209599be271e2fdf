"""Draws problems that are no convolutions, for Hypothesis."""

from __future__ import annotations

from math import floor, prod

from hypothesis import assume
from hypothesis import strategies as st

from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.kinds import expression as tree
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.expression import Apply, Cast, Constant, Expression, Operand
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.operators import OPERATORS
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling, output_shape
from convwright.core.kinds.resize import Interpolation, ResizeProblem
from convwright.core.tensor_spec import ALIGNMENTS, Layout, TensorSpec, dense_strides
from convwright.errors import BadInput

NUMBERS = tuple(each for each in OPERATORS.values() if not each.compares and not each.reduces and each.name != "where")
REDUCTIONS = tuple(each for each in OPERATORS.values() if each.reduces)
COMPARISONS = tuple(each for each in OPERATORS.values() if each.compares)
shapes = st.lists(st.integers(1, 6), min_size=1, max_size=6).map(tuple)
constants = st.floats(-1e3, 1e3, allow_nan=False).map(Constant)


def expressions(
    operands: tuple[str, ...] = ("a", "b", "scale"), *, casts: bool = True, most: int = 6
) -> st.SearchStrategy[Expression]:
    """Trees over some of these operands, which read at least one."""
    leaves: st.SearchStrategy[Expression] = st.sampled_from(operands).map(Operand) | constants

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        def applied(operator: str, arity: int) -> st.SearchStrategy[Expression]:
            return st.tuples(*[inner] * arity).map(lambda given: Apply(operator, given))

        number = st.sampled_from(NUMBERS).flatmap(lambda each: applied(each.name, each.arity))
        condition = st.sampled_from(COMPARISONS).flatmap(lambda each: applied(each.name, 2))
        chosen = st.tuples(condition, inner, inner).map(lambda given: Apply("where", given))
        cast = st.tuples(st.sampled_from(IN_PYTORCH), inner).map(lambda given: Cast(*given))
        return number | chosen | (cast if casts else number)

    return st.recursive(leaves, larger, max_leaves=most).filter(lambda each: bool(tree.names(each)))


@st.composite
def strided(draw: st.DrawFn, shape: tuple[int, ...], dtype: DType) -> TensorSpec:
    """An operand of this shape: dense in either layout, with its dimensions in any order, or with gaps."""
    how = draw(st.sampled_from(("nchw", "nhwc", "turned", "gaps")))
    alignment = draw(st.sampled_from(ALIGNMENTS))
    if how in ("nchw", "nhwc"):
        return TensorSpec(shape, dtype, dense_strides(shape, Layout(how)), alignment)
    order = draw(st.permutations(range(len(shape)))) if how == "turned" else range(len(shape))
    strides, step = [0] * len(shape), draw(st.integers(1, 3)) if how == "gaps" else 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim] + (draw(st.integers(0, 2)) if how == "gaps" else 0)
    return TensorSpec(shape, dtype, tuple(strides), alignment)


@st.composite
def pointwise_problems(
    draw: st.DrawFn, dtypes: tuple[DType, ...] = IN_PYTORCH, *, casts: bool = True
) -> PointwiseProblem:
    """Any expression over operands that are whole or broadcast, and lie anyhow."""
    expression, shape = draw(expressions(casts=casts)), draw(shapes)
    inputs = []
    for name in tree.names(expression):
        own = tuple(size if draw(st.booleans()) else 1 for size in shape)
        inputs.append((name, draw(strided(own, draw(st.sampled_from(dtypes))))))
    return PointwiseProblem(expression, tuple(inputs), draw(strided(shape, draw(st.sampled_from(dtypes)))))


def replaced(expression: Expression, name: str, by: Expression) -> Expression:
    """``expression`` with another in the place of an operand."""
    if expression == Operand(name):
        return by
    if isinstance(expression, Apply):
        return Apply(expression.operator, tuple(replaced(each, name, by) for each in expression.arguments))
    return (
        Cast(expression.dtype, replaced(expression.argument, name, by)) if isinstance(expression, Cast) else expression
    )


@st.composite
def row_expressions(draw: st.DrawFn, *, casts: bool = True, most: int = 4) -> tuple[Expression, bool]:
    """Trees with reductions, of which ``a`` has whole rows; and whether the result is one value for each row."""
    inner = draw(expressions(("a", "b"), casts=casts, most=2))
    if "a" not in tree.names(inner):
        inner = Apply(draw(st.sampled_from(("add", "mul", "maximum"))), (inner, Operand("a")))
    first = Apply(draw(st.sampled_from(REDUCTIONS)).name, (inner,))
    if draw(st.booleans()):
        second = Apply(draw(st.sampled_from(REDUCTIONS)).name, (Apply("sub", (Operand("a"), first)),))
        first = Apply(draw(st.sampled_from(("add", "mul", "sub"))), (first, second))
    reads = ("reduced", "s") if draw(st.booleans()) else ("reduced", "a", "s")
    outer = draw(expressions(reads, casts=casts, most=most).filter(lambda each: "reduced" in tree.names(each)))
    return replaced(outer, "reduced", first), "a" not in reads


@st.composite
def row_problems(draw: st.DrawFn, dtypes: tuple[DType, ...] = IN_PYTORCH, *, casts: bool = True) -> PointwiseProblem:
    """Any expression that reduces rows, over operands that lie anyhow; ``s`` is one number for each row."""
    expression, is_one = draw(row_expressions(casts=casts))
    shape = draw(shapes.filter(lambda each: prod(each) <= 250))
    row = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    one = tuple(1 if dim in row else size for dim, size in enumerate(shape))
    inputs = []
    for name in tree.names(expression):
        own = {"a": tuple(size if dim in row or draw(st.booleans()) else 1 for dim, size in enumerate(shape))}.get(
            name, tuple(size if draw(st.booleans()) else 1 for size in (one if name == "s" else shape))
        )
        inputs.append((name, draw(strided(own, draw(st.sampled_from(dtypes))))))
    y_shape = one if is_one and draw(st.booleans()) else shape
    y = draw(strided(y_shape, draw(st.sampled_from(dtypes))))
    divided = shape[min(row)] if y_shape == shape else 1
    groups = draw(st.sampled_from([count for count in range(1, divided + 1) if divided % count == 0]))
    return PointwiseProblem(expression, tuple(inputs), y, tuple(row), groups)


@st.composite
def copy_problems(draw: st.DrawFn, dtypes: tuple[DType, ...] = IN_PYTORCH, *, margins: bool = True) -> CopyProblem:
    """Any relayout, cast, pad and slice."""
    shape = draw(shapes)
    pairs = []
    for size in shape:
        before = draw(st.integers(-size, 3)) if margins else 0
        after = draw(st.integers(-size - min(before, 0), 3)) if margins else 0
        pairs.append((before, after))
    y_shape = tuple(size + before + after for size, (before, after) in zip(shape, pairs, strict=True))
    x, y = (draw(strided(each, draw(st.sampled_from(dtypes)))) for each in (shape, y_shape))
    return CopyProblem(x, y, tuple(pairs))


@st.composite
def linear_problems(draw: st.DrawFn, dtypes: tuple[DType, ...] = IN_PYTORCH) -> LinearProblem:
    """Any matrix product with what it fuses."""
    rows, inputs, outputs = (draw(st.integers(1, 12)) for _ in range(3))
    dtype = draw(st.sampled_from(dtypes))
    x, w, y = (draw(strided(shape, dtype)) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs)))
    flags = {name: draw(st.booleans()) for name in ("bias", "residual")}
    return LinearProblem(x, w, y, Epilogue(activation=draw(st.sampled_from(tuple(Activation))), **flags))


@st.composite
def resize_problems(draw: st.DrawFn, dtypes: tuple[DType, ...] = IN_PYTORCH, *, most: int = 12) -> ResizeProblem:
    """Any image of one to three dimensions with other sizes, or by scales."""
    rank = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, most if rank < 3 else 5)) for _ in range(rank)]
    scales = [draw(st.floats(0.3, 3.0)) for _ in range(rank)] if draw(st.booleans()) else []
    out = [floor(size * scale) for size, scale in zip(sizes, scales, strict=False)]
    out = out or [draw(st.integers(1, most if rank < 3 else 5)) for _ in range(rank)]
    shape, dtype = (draw(st.integers(1, 2)), draw(st.integers(1, 5))), draw(st.sampled_from(dtypes))
    interpolation = draw(st.sampled_from(Interpolation))
    aligned = interpolation is Interpolation.LINEAR and draw(st.booleans())
    assume(min(out) > 0)
    x, y = (draw(strided((*shape, *each), dtype)) for each in (sizes, out))
    try:
        return ResizeProblem(x, y, interpolation, aligned, tuple(scales))
    except BadInput as error:
        assume("do not agree" not in str(error))
        raise


@st.composite
def pool_problems(draw: st.DrawFn, dtypes: tuple[DType, ...] = IN_PYTORCH) -> PoolProblem:
    """Any window over lines, images and volumes that lie anyhow."""
    rank, pooling = draw(st.integers(1, 3)), draw(st.sampled_from(Pooling))
    taps, stride = (tuple(draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(2))
    padding = tuple(draw(st.integers(0, each // 2)) for each in taps)
    dilation = tuple(draw(st.integers(1, 2)) if pooling is Pooling.MAX else 1 for _ in range(rank))
    reaches = [(window - 1) * gap + 1 for window, gap in zip(taps, dilation, strict=True)]
    sizes = tuple(reach + draw(st.integers(-2 * pad, 5)) for reach, pad in zip(reaches, padding, strict=True))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 5)), *(max(size, 1) for size in sizes))
    ceil, includes_padding, dtype = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(dtypes))
    divisor = draw(st.none() | st.integers(1, 9)) if pooling is Pooling.AVG else None
    window = taps, stride, padding, dilation
    x, y = (draw(strided(each, dtype)) for each in (shape, output_shape(shape, *window, ceil=ceil)))
    return PoolProblem(pooling, x, y, *window, ceil, includes_padding, divisor)
