"""The float64 reference of an expression, and the allowed error of each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, prod, sqrt

import torch
from torch import Tensor

from convwright.core.dtype import DType
from convwright.core.kinds.expression import Apply, Cast, Constant, Expression, Operand, evaluate, steps
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.measuring.checking.parts import MOST_ELEMENTS, InGroups, Points, Rows, Slices
from convwright.measuring.checking.reference import Reference
from convwright.tensors import torch_dtype
from convwright.torch_operators import FUNCTIONS, REDUCTIONS

_EXPONENTIAL = frozenset({"exp", "sigmoid", "silu"})
_EXACT = frozenset({"neg", "abs", "maximum", "minimum", "relu", "where"})
# Roundoffs of fp32 that a good implementation of a function adds; other operators round once. Divisions and roots round
# twice on some GPUs; exponentials lose bits of a large argument.
_ROUNDINGS = {
    "div": 4.0, "sqrt": 4.0, "rsqrt": 4.0, "exp": 4.0, "erf": 8.0, "tanh": 8.0, "sigmoid": 8.0, "silu": 10.0,
    "gelu": 10.0, "hardsigmoid": 4.0, "hardswish": 6.0,
}  # fmt: skip

# Value and absolute error of a step.
Pair = tuple[Tensor, Tensor]


def whole(problem: PointwiseProblem, tensors: Mapping[str, Tensor]) -> Reference:
    """Computed where the operands are; on slices if the whole would take too much memory. Rows stay whole."""
    plain = problem.ungrouped
    return _reference(problem, tensors, InGroups(problem, Slices.of(plain.shape, row=plain.row)), plain.row)


def sampled(problem: PointwiseProblem, tensors: Mapping[str, Tensor], *, seed: int = 0) -> Reference:
    """The same at single elements, or for single rows if these are reduced."""
    device, plain = next(iter(tensors.values())).device, problem.ungrouped
    if not plain.row:
        return _reference(problem, tensors, Points.of(plain.shape, device, seed=seed), ())
    rows = InGroups(problem, Rows.of(plain.shape, plain.row, device, seed=seed))
    return _reference(problem, tensors, rows, tuple(range(1, 1 + len(plain.row))))


def _reference(
    problem: PointwiseProblem, tensors: Mapping[str, Tensor], part: InGroups | Points, row: tuple[int, ...]
) -> Reference:
    """The reference of a part; ``row`` are the dimensions of a row within it."""
    exact = {name: part.take(name, tensors[name]).double() for name, _ in problem.inputs}
    unit = 2.0**-53 if problem.dtype is DType.FP64 else 2.0**-24
    value, error = evaluated(problem.expression, exact, unit, row)
    wanted = tuple(1 if problem.is_reduced and dim in row else size for dim, size in enumerate(part.shape))
    scale = value.abs() + error / problem.y.dtype.roundoff
    return Reference(problem, part, value.expand(wanted), scale.expand(wanted), problem.outputs[-1])


def evaluated(expression: Expression, operands: Mapping[str, Tensor], unit: float, row: tuple[int, ...] = ()) -> Pair:
    """The value in float64, and the largest difference from it if each step is rounded to ``unit``.

    If rounding may turn a comparison, the error of what it selects is infinite. A sum of n elements adds n - 1
    roundings of the sum of their magnitudes, since its order is free.
    """
    like = next(iter(operands.values()))

    def compute(step: Expression, given: list[Pair]) -> Pair:
        if isinstance(step, Operand):
            return operands[step.name], torch.zeros_like(operands[step.name])
        if isinstance(step, Constant):
            value = like.new_tensor(step.value)
            return value, (value - value.float().double()).abs() if unit > 2.0**-53 else torch.zeros_like(value)
        if isinstance(step, Cast):
            ((value, error),) = given
            rounded = value.to(torch_dtype(step.dtype)).double()
            larger = value.abs().clamp_min(torch.finfo(torch_dtype(step.dtype)).smallest_normal)
            # Overflow gives an infinity. Rounding is an error even so, since the value before it may err.
            return torch.where(rounded.isinf(), rounded, value), error + max(step.dtype.roundoff, unit) * larger
        if step.operator in REDUCTIONS:
            return _reduced(step.operator, *given[0], unit, row)
        return _applied(step, given, unit)

    return evaluate(expression, compute)


def _applied(step: Apply, given: list[Pair], unit: float) -> Pair:
    values = [value for value, _ in given]
    result = FUNCTIONS[step.operator](*values)
    if result.dtype is torch.bool:
        # If both sides are so close that rounding may turn the comparison, the result is unknown.
        (left, left_error), (right, right_error) = given
        return result, torch.where((left - right).abs() <= left_error + right_error, _unsure(left, given), 0.0)
    error = _PROPAGATED[step.operator](result, given)
    if step.operator not in _EXACT:
        error = error + _own(step.operator, result, values) * unit
    if step.operator in _EXPONENTIAL:
        # A result below the least normal number may become 0, if its exponential or a reciprocal overflows.
        error = error + (1 + values[0].abs()) * (2.0**-1022 if unit == 2.0**-53 else 2.0**-126)
    # An infinity or NaN is either right or wrong, and so is a finite result of one, such as exp(-inf).
    return result, torch.where(result.isfinite() & ~error.isnan(), error, 0.0)


def _reduced(operator: str, value: Tensor, error: Tensor, unit: float, row: tuple[int, ...]) -> Pair:
    result, count = REDUCTIONS[operator](value, row, keepdim=True), prod(value.shape[dim] for dim in row)
    if operator == "max":
        total = error.amax(row, keepdim=True)
    else:
        total = (error + (count - 1) * unit * (value.abs() + error)).sum(row, keepdim=True)
    if operator == "mean":
        total = total / count + _ROUNDINGS["div"] * unit * result.abs()
    return result, torch.where(result.isfinite() & ~total.isnan(), total, 0.0)


def _unsure(left: Tensor, given: list[Pair]) -> Tensor:
    """Infinite, except for equal values that were not computed, whose order is known."""
    exact = (given[0][1] == 0) & (given[1][1] == 0)
    return torch.where(exact, 0.0, torch.inf).to(left.dtype)


def _own(operator: str, result: Tensor, values: list[Tensor]) -> Tensor:
    """The roundoffs that an operator itself adds, times the rounded value."""
    times = _ROUNDINGS.get(operator, 1.0)
    if operator == "exp":
        return (times + 2 * values[0].abs()) * result.abs()
    if operator in ("sigmoid", "silu"):
        # Far below zero both behave like exponentials.
        return (times + 2 * values[0].abs() * torch.sigmoid(-values[0])) * result.abs()
    if operator == "gelu":
        return times * values[0].abs()  # 1 + erf loses digits below zero
    return times * result.abs()


def _sum(result: Tensor, given: list[Pair]) -> Tensor:
    return given[0][1] + given[1][1]


def _product(result: Tensor, given: list[Pair]) -> Tensor:
    (a, a_error), (b, b_error) = given
    return a.abs() * b_error + b.abs() * a_error + a_error * b_error


def _quotient(result: Tensor, given: list[Pair]) -> Tensor:
    (_, a_error), (b, b_error) = given
    least = (b.abs() - b_error).clamp_min(0.0)
    return torch.where(a_error + b_error > 0, (a_error + result.abs() * b_error) / least, 0.0)


def _chosen(result: Tensor, given: list[Pair]) -> Tensor:
    (condition, unsure), (_, one), (_, other) = given
    return torch.where(condition.bool(), one, other) + unsure


def _larger(result: Tensor, given: list[Pair]) -> Tensor:
    return torch.maximum(given[0][1], given[1][1])


def _sloped(slope: Callable[[Tensor], Tensor | float]) -> Callable[[Tensor, list[Pair]], Tensor]:
    """The argument's error times the function's slope there."""

    def propagated(result: Tensor, given: list[Pair]) -> Tensor:
        ((value, error),) = given
        return torch.where(error > 0, slope(value) * error, 0.0)

    return propagated


def _root(result: Tensor, given: list[Pair]) -> Tensor:
    ((value, error),) = given
    least = (value.abs() - error).clamp_min(0.0)
    return torch.where(error > 0, error / torch.sqrt(least), 0.0)


def _inverse_root(result: Tensor, given: list[Pair]) -> Tensor:
    ((value, error),) = given
    least = (value.abs() - error).clamp_min(0.0)
    return torch.where(error > 0, error / least**1.5, 0.0)


def _exponential(result: Tensor, given: list[Pair]) -> Tensor:
    ((_, error),) = given
    return torch.where(error > 0, result * torch.expm1(error), 0.0)


_PROPAGATED: Mapping[str, Callable[[Tensor, list[Pair]], Tensor]] = {
    "add": _sum, "sub": _sum, "mul": _product, "div": _quotient, "where": _chosen, "maximum": _larger,
    "minimum": _larger, "sqrt": _root, "rsqrt": _inverse_root, "exp": _exponential,
    "neg": _sloped(lambda x: 1.0), "abs": _sloped(lambda x: 1.0), "relu": _sloped(lambda x: 1.0),
    "erf": _sloped(lambda x: 2 / sqrt(pi)), "tanh": _sloped(lambda x: 1.0), "sigmoid": _sloped(lambda x: 0.25),
    "silu": _sloped(lambda x: 1.1), "gelu": _sloped(lambda x: 1.13), "hardsigmoid": _sloped(lambda x: 1 / 6),
    "hardswish": _sloped(lambda x: 1.5),
}  # fmt: skip


# Bytes in float64 that a device moves in a microsecond from step to step: a rough estimate.
_BYTES_PER_US = {"cpu": 2e3, "cuda": 5e5}
_PASSES = 8  # over each step's value, its error and their arguments


def whole_us(problem: PointwiseProblem, device: torch.device) -> float:
    """A rough upper bound for the time of a whole reference."""
    elements = min(prod(problem.shape), MOST_ELEMENTS)
    rate = _BYTES_PER_US.get(device.type, _BYTES_PER_US["cpu"])
    return elements * 8 * _PASSES * (len(steps(problem.expression)) + 1) / rate
