"""The closed table of operators for expressions.

Every backend has code for each of these names; expressions can use no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Binds(IntEnum):
    """How strongly an operator binds its arguments; comparisons bind least."""

    COMPARISON = 1
    SUM = 2
    PRODUCT = 3
    SIGN = 4
    CALL = 5


@dataclass(frozen=True, slots=True)
class Operator:
    """``flops`` counts one application. ``symbol`` is written between the arguments, or before a single one."""

    name: str
    arity: int
    flops: int = 1
    symbol: str | None = None
    binds: Binds = Binds.CALL
    reduces: bool = False
    """Whether the result is one value for all elements of a row."""

    @property
    def compares(self) -> bool:
        """Whether the result is a condition, which only ``where`` takes."""
        return self.binds is Binds.COMPARISON


_TABLE = (
    Operator("add", 2, symbol="+", binds=Binds.SUM),
    Operator("sub", 2, symbol="-", binds=Binds.SUM),
    Operator("mul", 2, symbol="*", binds=Binds.PRODUCT),
    Operator("div", 2, symbol="/", binds=Binds.PRODUCT),
    Operator("neg", 1, symbol="-", binds=Binds.SIGN),
    Operator("lt", 2, symbol="<", binds=Binds.COMPARISON),
    Operator("le", 2, symbol="<=", binds=Binds.COMPARISON),
    Operator("gt", 2, symbol=">", binds=Binds.COMPARISON),
    Operator("ge", 2, symbol=">=", binds=Binds.COMPARISON),
    Operator("eq", 2, symbol="==", binds=Binds.COMPARISON),
    Operator("ne", 2, symbol="!=", binds=Binds.COMPARISON),
    Operator("where", 3),
    Operator("maximum", 2),
    Operator("minimum", 2),
    Operator("abs", 1),
    Operator("sqrt", 1),
    Operator("rsqrt", 1),
    Operator("exp", 1, flops=4),
    Operator("erf", 1, flops=16),
    Operator("tanh", 1, flops=16),
    Operator("sigmoid", 1, flops=6),
    Operator("relu", 1),
    Operator("silu", 1, flops=7),
    Operator("gelu", 1, flops=20),
    Operator("hardsigmoid", 1, flops=4),
    Operator("hardswish", 1, flops=5),
    Operator("sum", 1, reduces=True),
    Operator("mean", 1, reduces=True),
    Operator("max", 1, reduces=True),
)
OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in _TABLE}
BETWEEN: Mapping[str, Operator] = {each.symbol: each for each in _TABLE if each.symbol and each.arity == 2}
