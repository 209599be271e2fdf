"""The operators of expressions in PyTorch's own functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.core.kinds.expression import Apply, Cast, Constant, Expression, Operand, arguments_of, steps
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.tensors import torch_dtype

# What stands for a step of an expression: numbers of constants stay numbers, which promote no dtype.
Value = Tensor | float | bool


def _maximum(a: Any, b: Any) -> Tensor:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.maximum(a, b)
    return torch.clamp(a, min=b) if isinstance(a, Tensor) else torch.clamp(b, min=a)


def _minimum(a: Any, b: Any) -> Tensor:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.minimum(a, b)
    return torch.clamp(a, max=b) if isinstance(a, Tensor) else torch.clamp(b, max=a)


FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "where": torch.where,
    "maximum": _maximum,
    "minimum": _minimum,
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "exp": torch.exp,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
}
# Each takes the dimensions of a row, ``keepdim`` and ``out``.
REDUCTIONS: Mapping[str, Callable[..., Tensor]] = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}


def computing(problem: PointwiseProblem, dtype: torch.dtype) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """A problem as a function of its operands by name, as ``compiled`` makes one of an expression. What is one value
    along a dimension of the output has size 1 there."""
    plain = problem.ungrouped
    compute = compiled(plain.expression, dtype, plain.row)
    if problem.groups == 1:
        return compute

    def compute_groups(operands: Mapping[str, Tensor]) -> Tensor:
        made = compute({name: in_groups(problem, name, tensor) for name, tensor in operands.items()})
        return made.expand(plain.y.shape).flatten(problem.row[0], problem.row[0] + 1)

    return compute_groups


def in_groups(problem: PointwiseProblem, name: str, tensor: Tensor) -> Tensor:
    """A view of the operand of this name with the sizes that it has in ``problem.ungrouped``."""
    return tensor if problem.groups == 1 else tensor.view(problem.ungrouped.operands[name].shape)


def compiled(
    expression: Expression, dtype: torch.dtype = torch.float32, row: tuple[int, ...] = ()
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """``expression`` as a function of its operands by name, which calls PyTorch's functions one after the other.

    What is chosen among numbers alone is stored in ``dtype``. Reductions reduce the dimensions ``row``.

    >>> from convwright.core.kinds.expression_text import parse
    >>> compiled(parse("maximum(a, 2 - 1) * 3"))({"a": torch.tensor([0.0, 5.0])})
    tensor([ 3., 15.])
    """
    order = steps(expression)
    places = {step: place for place, step in enumerate(order)}
    program = [(_computing(step, dtype, row), [places[argument] for argument in arguments_of(step)]) for step in order]

    def compute(operands: Mapping[str, Tensor]) -> Tensor:
        values: list[Value] = []
        for function, arguments in program:
            values.append(function(operands, *[values[place] for place in arguments]))
        result = values[-1]
        if isinstance(result, Tensor):
            return result
        return torch.full((), result, dtype=dtype, device=next(iter(operands.values())).device)

    return compute


def _computing(step: Expression, dtype: torch.dtype, row: tuple[int, ...]) -> Callable[..., Value]:
    """What gives a step's value from the operands and the values of its arguments."""
    if isinstance(step, Operand):
        name = step.name
        return lambda operands: operands[name]
    if isinstance(step, Constant):
        value = step.value
        return lambda operands: value
    if isinstance(step, Cast):
        return lambda operands, argument: cast(argument, torch_dtype(step.dtype))
    if step.operator in REDUCTIONS:
        reduce = REDUCTIONS[step.operator]
        return lambda operands, argument: reduce(argument, row, keepdim=True)
    return _applying(step, dtype)


def _applying(step: Apply, dtype: torch.dtype) -> Callable[..., Value]:
    function = FUNCTIONS[step.operator]

    def apply(operands: Mapping[str, Tensor], *arguments: Value) -> Value:
        if any(isinstance(argument, Tensor) for argument in arguments):
            return function(*arguments) if step.operator != "where" else _chosen(dtype, *arguments)
        # Of numbers alone, computed as exactly as the reference does.
        kinds = (torch.bool if isinstance(argument, bool) else torch.float64 for argument in arguments)
        exact = [torch.tensor(argument, dtype=kind) for argument, kind in zip(arguments, kinds, strict=True)]
        return function(*exact).item()

    return apply


def _chosen(dtype: torch.dtype, condition: Value, one: Value, other: Value) -> Value:
    if isinstance(condition, Tensor):
        if not isinstance(one, Tensor) and not isinstance(other, Tensor):
            one = torch.full((), one, dtype=dtype, device=condition.device)
        return torch.where(condition, one, other)
    return one if condition else other


def cast(value: Value, dtype: torch.dtype) -> Value:
    """``value`` rounded to ``dtype``; a number stays one."""
    if isinstance(value, Tensor):
        return value.to(dtype)
    return torch.tensor(value, dtype=torch.float64).to(dtype).item()
