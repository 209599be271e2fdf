"""PyTorch's element-wise operators as expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt
from typing import Any

from convwright.core.kinds.expression import Apply, Constant, Expression

# From an operator's arguments, with tensors as expressions, to its expression; None if the arguments have none.
Builder = Callable[..., Expression | None]


def number(value: Any) -> Expression | None:
    """An argument as an expression; None if it has none."""
    if isinstance(value, bool | int | float):
        return Constant(float(value))
    return None if value is None or isinstance(value, str | list) else value


def _both(operator: str) -> Builder:
    def build(a: Any, b: Any, *, alpha: float = 1, **others: Any) -> Expression | None:
        first, second = number(a), number(b)
        if first is None or second is None or any(other is not None for other in others.values()):
            return None
        if alpha != 1:
            second = Apply("mul", (second, Constant(alpha)))
        return Apply(operator, (first, second))

    return build


def _one(operator: str) -> Builder:
    return lambda a: Apply(operator, (a,))


def _clamp(a: Expression, low: float | None = None, high: float | None = None) -> Expression:
    if low is not None:
        a = Apply("maximum", (a, Constant(low)))
    return a if high is None else Apply("minimum", (a, Constant(high)))


def _gelu(a: Expression, *, approximate: str = "none") -> Expression:
    if approximate == "none":
        return Apply("gelu", (a,))
    cubed = Apply("mul", (Apply("mul", (a, a)), a))
    inside = Apply("mul", (Constant(sqrt(2 / pi)), Apply("add", (a, Apply("mul", (Constant(0.044715), cubed))))))
    return Apply("mul", (Apply("mul", (Constant(0.5), a)), Apply("add", (Constant(1.0), Apply("tanh", (inside,))))))


def _leaky(a: Expression, slope: float = 0.01) -> Expression:
    return Apply("where", (Apply("gt", (a, Constant(0.0))), a, Apply("mul", (a, Constant(slope)))))


def _power(a: Expression, exponent: Any) -> Expression | None:
    if exponent == 2:
        return Apply("mul", (a, a))
    return Apply({0.5: "sqrt", -0.5: "rsqrt"}[exponent], (a,)) if exponent in (0.5, -0.5) else None


def _reversed_sub(a: Any, b: Any, alpha: float = 1) -> Expression | None:
    return _both("sub")(b, a) if alpha == 1 else None


def _added_product(a: Expression, b: Expression, c: Expression, *, value: float = 1) -> Expression:
    product = Apply("mul", (b, c))
    return Apply("add", (a, product if value == 1 else Apply("mul", (product, Constant(value)))))


BUILDERS: Mapping[str, Builder] = {
    "aten.add.Tensor": _both("add"), "aten.add.Scalar": _both("add"),
    "aten.sub.Tensor": _both("sub"), "aten.sub.Scalar": _both("sub"), "aten.rsub.Scalar": _reversed_sub,
    "aten.mul.Tensor": _both("mul"), "aten.mul.Scalar": _both("mul"),
    "aten.div.Tensor": _both("div"), "aten.div.Scalar": _both("div"),
    "aten.maximum.default": _both("maximum"), "aten.minimum.default": _both("minimum"),
    "aten.addcmul.default": _added_product,
    "aten.neg.default": _one("neg"), "aten.abs.default": _one("abs"), "aten.sqrt.default": _one("sqrt"),
    "aten.rsqrt.default": _one("rsqrt"), "aten.exp.default": _one("exp"), "aten.erf.default": _one("erf"),
    "aten.tanh.default": _one("tanh"), "aten.sigmoid.default": _one("sigmoid"), "aten.relu.default": _one("relu"),
    "aten.silu.default": _one("silu"), "aten.hardsigmoid.default": _one("hardsigmoid"),
    "aten.hardswish.default": _one("hardswish"), "aten.gelu.default": _gelu,
    "aten.relu6.default": lambda a: _clamp(a, 0.0, 6.0), "aten.leaky_relu.default": _leaky,
    "aten.clamp.default": lambda a, low=None, high=None, **named: _clamp(
        a, named.get("min", low), named.get("max", high)
    ),
    "aten.clamp_min.default": lambda a, low: _clamp(a, low),
    "aten.hardtanh.default": lambda a, low=-1.0, high=1.0: _clamp(a, low, high), "aten.pow.Tensor_Scalar": _power,
}  # fmt: skip
