"""Describe a problem of any kind by numbers: its equivalent matrix product, its sizes, its operands' layouts."""

from __future__ import annotations

from math import gcd, log2, prod
from typing import NamedTuple

from convwright.core.direction import Direction
from convwright.core.kinds.expression import steps
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec

PROBLEM_FEATURES = (
    "backward_data", "backward_weight", "linear", "pointwise", "copy", "pool", "resize",
    "log flops", "log bytes", "log output", "log first operand", "log second operand", "log intensity",
    "log rows", "log columns", "log depth", "log groups",
    "log images", "log channels", "log filters", "log width", "log height", "log taps", "log stride", "log dilation",
    "dimensions", "padding share", "element bytes", "operands", "steps",
    "x channels last", "y channels last", "w channels last",
    "width divisor", "input width divisor", "channels divisor", "filters divisor",
)  # fmt: skip
# Only powers of two up to this one matter to vectors and alignments.
_MOST_DIVISOR = 64


class Product(NamedTuple):
    """A matrix product of ``rows`` by ``columns`` with sums of ``depth`` products, in each of ``groups``."""

    rows: int
    columns: int
    depth: int
    groups: int


class ProblemFeatures(NamedTuple):
    """``numbers`` are the values of ``PROBLEM_FEATURES``."""

    numbers: tuple[float, ...]
    product: Product
    flops: int
    bytes: int


def problem_features(problem: Problem) -> ProblemFeatures:
    """The features of a problem.

    >>> problem_features(ConvProblem.parse("mb8ic16ih14oc32kh3ph1")).product
    Product(rows=1568, columns=32, depth=144, groups=1)
    """
    if isinstance(problem, ConvProblem):
        return _of_conv(problem)
    operands, output, kind = problem.operands, problem.output, problem.kind
    first = next(iter(operands.values()))
    product, flops, nbytes = _product(problem), problem.flops, problem.bytes
    window = (prod(problem.taps), prod(problem.stride)) if isinstance(problem, PoolProblem) else (1, 1)
    numbers = (
        0.0, 0.0, *(float(kind == each) for each in ("linear", "pointwise", "copy", "pool", "resize")),
        _log(flops), _log(nbytes), _log(output.numel), *_operands(problem), _log(flops / max(nbytes, 1)),
        _log(product.rows), _log(product.columns), _log(product.depth), _log(product.groups),
        _log(output.shape[0] if output.shape else 1), _log(_size(first, 1)), _log(_size(output, 1)),
        _log(_size(output, -1)), _log(_size(output, -2)), _log(window[0]), _log(window[1]), 0.0,
        float(len(output.shape)), 0.0, float(first.dtype.nbytes), float(len(operands)), float(_steps(problem)),
        _is_last(first), _is_last(output), 0.0,
        _divisor(_size(output, -1)), _divisor(_size(first, -1)),
        _divisor(_size(first, 1)), _divisor(_size(output, 1)),
    )  # fmt: skip
    return ProblemFeatures(numbers, product, flops, nbytes)


def _of_conv(problem: ConvProblem) -> ProblemFeatures:
    product, flops, nbytes, direction = _product(problem), problem.flops, problem.bytes, problem.direction
    width, height = problem.y.shape[-1], problem.y.shape[-2] if problem.rank > 1 else 1
    channels, filters = problem.c // problem.groups, problem.k // problem.groups
    whole = 2 * problem.y.numel * problem.w.shape[1] * prod(problem.taps)
    epilogue = problem.epilogue
    numbers = (
        float(direction is Direction.BACKWARD_DATA), float(direction is Direction.BACKWARD_WEIGHT),
        0.0, 0.0, 0.0, 0.0, 0.0,
        _log(flops), _log(nbytes), _log(problem.output.numel), *_operands(problem), _log(flops / max(nbytes, 1)),
        _log(product.rows), _log(product.columns), _log(product.depth), _log(product.groups),
        _log(problem.n), _log(channels), _log(filters), _log(width), _log(height),
        _log(prod(problem.taps)), _log(prod(problem.stride)), _log(prod(problem.dilation)),
        float(problem.rank), 1 - flops / max(whole, 1), float(problem.dtype.nbytes), float(len(problem.operands)),
        float(epilogue.bias + epilogue.residual + epilogue.scale + (epilogue.activation != "none")),
        _is_last(problem.x), _is_last(problem.y), _is_last(problem.w),
        _divisor(width), _divisor(problem.x.shape[-1]), _divisor(channels), _divisor(filters),
    )  # fmt: skip
    return ProblemFeatures(numbers, product, flops, nbytes)


def _product(problem: Problem) -> Product:
    if isinstance(problem, LinearProblem):
        return Product(problem.rows, problem.width, problem.inputs, 1)
    if not isinstance(problem, ConvProblem):
        return Product(problem.output.numel, 1, problem.reduction, 1)
    pixels, taps, groups = problem.n * prod(problem.y.shape[2:]), prod(problem.taps), problem.groups
    channels, filters = problem.c // groups, problem.k // groups
    if problem.direction is Direction.FORWARD:
        return Product(pixels, filters, channels * taps, groups)
    if problem.direction is Direction.BACKWARD_DATA:
        return Product(problem.n * prod(problem.x.shape[2:]), channels, filters * taps, groups)
    return Product(filters, channels * taps, pixels, groups)


def _steps(problem: Problem) -> int:
    if isinstance(problem, PointwiseProblem):
        return len(steps(problem.expression))
    if isinstance(problem, LinearProblem):
        epilogue = problem.epilogue
        return int(epilogue.bias) + int(epilogue.residual) + int(epilogue.activation != "none")
    return 0


def _operands(problem: Problem) -> tuple[float, float]:
    """Bytes of the first two operands, on a logarithmic scale."""
    first, second, *_ = (*(each.numel * each.dtype.nbytes for each in problem.operands.values()), 1, 1)
    return _log(first), _log(second)


def _log(number: float) -> float:
    return log2(number) if number > 1e-9 else -30.0


def _size(spec: TensorSpec, dim: int) -> int:
    """The size of a dimension; 1 if it does not exist."""
    rank = len(spec.shape)
    return spec.shape[dim] if -rank <= dim < rank else 1


def _is_last(spec: TensorSpec) -> float:
    return float(spec.layout is Layout.NHWC)


def _divisor(size: int) -> float:
    """The logarithm of the largest power of two that divides a size, up to the limit."""
    return log2(gcd(size, _MOST_DIVISOR)) if size else 0.0
