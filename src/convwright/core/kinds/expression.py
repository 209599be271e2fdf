"""Expressions over named operands: trees from a closed table of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TypeGuard, TypeVar

from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.kinds.operators import OPERATORS
from convwright.core.record import Record
from convwright.errors import BadInput

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Operand(Record):
    """A named operand, read from memory."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Constant(Record):
    """A number in the expression."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))
        if not isfinite(self.value):
            raise BadInput(f"a constant of an expression must be finite, got {self.value}")

    def __str__(self) -> str:
        return repr(self.value).removesuffix(".0")


@dataclass(frozen=True, slots=True)
class Apply(Record):
    """An operator applied to its arguments. Comparisons make conditions, which only ``where`` takes.

    >>> str(Apply("mul", (Operand("a"), Apply("add", (Operand("b"), Constant(1.0))))))
    'a * (b + 1)'
    """

    operator: str
    arguments: tuple[Expression, ...]

    def __post_init__(self) -> None:
        operator = OPERATORS.get(self.operator)
        if operator is None:
            raise BadInput(f"no operator is called {self.operator!r}; there are {', '.join(OPERATORS)}")
        if len(self.arguments) != operator.arity:
            plural = "s" * (operator.arity != 1)
            raise BadInput(f"{self.operator} takes {operator.arity} argument{plural}, got {len(self.arguments)}")
        for place, argument in enumerate(self.arguments):
            wanted = self.operator == "where" and place == 0
            if is_condition(argument) is not wanted:
                what = "needs a comparison as its first argument" if wanted else "cannot take a comparison"
                raise BadInput(f"{self.operator} {what}, got {argument}")

    def __str__(self) -> str:
        operator = OPERATORS[self.operator]
        first = self.arguments[0]
        if _is_call(self):
            return f"{self.operator}({', '.join(map(str, self.arguments))})"
        if operator.arity == 1:
            return f"{operator.symbol}{_within(first, operator.binds)}"
        second = self.arguments[1]
        left = operator.binds + operator.compares  # sums and products are read from the left, comparisons stand alone
        return f"{_within(first, left)} {operator.symbol} {_within(second, operator.binds + 1)}"


@dataclass(frozen=True, slots=True)
class Cast(Record):
    """A value rounded to a dtype: ``fp16(a + b)``."""

    dtype: DType
    argument: Expression

    def __post_init__(self) -> None:
        if self.dtype not in IN_PYTORCH:
            raise BadInput(f"an expression casts to {', '.join(IN_PYTORCH)}, got {self.dtype}")
        if is_condition(self.argument):
            raise BadInput(f"{self.dtype} cannot take a comparison, got {self.argument}")

    def __str__(self) -> str:
        return f"{self.dtype}({self.argument})"


Expression = Operand | Constant | Apply | Cast


def is_condition(expression: Expression) -> bool:
    """Whether it is a comparison, which is not a number."""
    return isinstance(expression, Apply) and OPERATORS[expression.operator].compares


def arguments_of(expression: Expression) -> tuple[Expression, ...]:
    """The arguments of an expression; empty for an operand or a constant."""
    if isinstance(expression, Apply):
        return expression.arguments
    return (expression.argument,) if isinstance(expression, Cast) else ()


def steps(expression: Expression) -> tuple[Expression, ...]:
    """All distinct parts of an expression, each after its arguments, the whole last.

    >>> from convwright.core.kinds.expression_text import parse
    >>> [str(step) for step in steps(parse("a * a + 1"))]
    ['a', 'a * a', '1', 'a * a + 1']
    """
    return tuple(dict.fromkeys(_walk(expression)))


def _walk(expression: Expression) -> Iterator[Expression]:
    for argument in arguments_of(expression):
        yield from _walk(argument)
    yield expression


def evaluate(expression: Expression, compute: Callable[[Expression, list[_Value]], _Value]) -> _Value:
    """The value of an expression. ``compute`` gives the value of one step from its arguments' values. Equal parts are
    computed once.

    >>> from convwright.core.kinds.expression_text import parse
    >>> evaluate(parse("a * (b + 1)"), lambda step, values: 1 + sum(values))  # counts the parts
    5
    """
    values: dict[Expression, _Value] = {}
    for step in steps(expression):
        values[step] = compute(step, [values[argument] for argument in arguments_of(step)])
    return values[expression]


def names(expression: Expression) -> tuple[str, ...]:
    """The names of the operands, in the order in which they are read."""
    return tuple(step.name for step in steps(expression) if isinstance(step, Operand))


def reductions(expression: Expression) -> tuple[Apply, ...]:
    """The parts that reduce a row to one value.

    >>> from convwright.core.kinds.expression_text import parse
    >>> [str(step) for step in reductions(parse("exp(a - max(a)) / sum(exp(a - max(a)))"))]
    ['max(a)', 'sum(exp(a - max(a)))']
    """
    return tuple(step for step in steps(expression) if is_reduction(step))


def is_reduction(expression: Expression) -> TypeGuard[Apply]:
    """Whether it is one value for a whole row."""
    return isinstance(expression, Apply) and OPERATORS[expression.operator].reduces


def flops(expression: Expression) -> int:
    """Operations for one element; equal parts count once."""
    return sum(OPERATORS[step.operator].flops for step in steps(expression) if isinstance(step, Apply))


def _is_call(expression: Apply) -> bool:
    """Whether it is written as a function. The negative of a constant is: -1 by itself is a constant."""
    operator = OPERATORS[expression.operator]
    return operator.symbol is None or (operator.arity == 1 and isinstance(expression.arguments[0], Constant))


def _within(expression: Expression, least: int) -> str:
    """An argument as text, in parentheses if it binds less than ``least``."""
    if not isinstance(expression, Apply) or _is_call(expression):
        return str(expression)
    return str(expression) if OPERATORS[expression.operator].binds >= least else f"({expression})"
