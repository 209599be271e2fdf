"""Expressions over rows that equal functions of PyTorch: softmax and norms."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.kinds.expression import Apply, Constant, Expression, Operand, names, steps
from convwright.core.record import Record


def softmax(a: Expression) -> Expression:
    """Softmax of each row.

    >>> str(softmax(Operand("a")))
    'exp(a - max(a)) / sum(exp(a - max(a)))'
    """
    powers = Apply("exp", (Apply("sub", (a, Apply("max", (a,)))),))
    return Apply("div", (powers, Apply("sum", (powers,))))


def normalized(a: Expression, eps: float) -> Expression:
    """Each row normalised to mean 0 and variance 1, up to ``eps``.

    >>> str(normalized(Operand("a"), 1e-05))
    '(a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-05)'
    """
    centred = Apply("sub", (a, Apply("mean", (a,))))
    variance = Apply("mean", (Apply("mul", (centred, centred)),))
    return Apply("mul", (centred, Apply("rsqrt", (Apply("add", (variance, Constant(eps))),))))


@dataclass(frozen=True, slots=True)
class Norm(Record):
    """``normalized(a) * scale + shift``. Operands are named; None if there is no scale or no shift."""

    a: str
    eps: float
    scale: str | None = None
    shift: str | None = None

    @property
    def expression(self) -> Expression:
        made = normalized(Operand(self.a), self.eps)
        if self.scale is not None:
            made = Apply("mul", (made, Operand(self.scale)))
        return made if self.shift is None else Apply("add", (made, Operand(self.shift)))


def norm_of(expression: Expression) -> Norm | None:
    """The norm that an expression equals, or None.

    >>> norm_of(Norm("a", 1e-05, "g", "b").expression)
    Norm(a='a', eps=1e-05, scale='g', shift='b')
    """
    inside, shift = _without("add", expression)
    inside, scale = _without("mul", inside)
    constants = {step.value for step in steps(inside) if isinstance(step, Constant)}
    if len(names(inside)) != 1 or len(constants) != 1:
        return None
    norm = Norm(names(inside)[0], constants.pop(), scale, shift)
    return norm if norm.expression == expression else None


def _without(operator: str, expression: Expression) -> tuple[Expression, str | None]:
    """The expression without its last operand of this operator, and that operand."""
    if isinstance(expression, Apply) and expression.operator == operator:
        inside, last = expression.arguments
        if isinstance(last, Operand):
            return inside, last.name
    return expression, None


def softmax_of(expression: Expression) -> str | None:
    """The operand whose softmax an expression equals, or None."""
    read = names(expression)
    return read[0] if len(read) == 1 and expression == softmax(Operand(read[0])) else None
