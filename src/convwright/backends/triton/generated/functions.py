"""Functions of fp32 numbers that generated kernels call.

``PRECISE`` is set for results stored in fp32, in which the error of fast instructions would be visible.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def exp(x, PRECISE: tl.constexpr):
    return libdevice.exp(x) if PRECISE else tl.exp(x)


@triton.jit
def div(a, b, PRECISE: tl.constexpr):
    return tl.div_rn(a, b) if PRECISE else a / b


@triton.jit
def sqrt(x, PRECISE: tl.constexpr):
    return tl.sqrt_rn(x) if PRECISE else tl.sqrt(x)


@triton.jit
def tanh(x, PRECISE: tl.constexpr):
    """A polynomial near zero, where the difference of exponentials would lose all digits."""
    z = x * x
    near = ((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1
    near = (near * z - 3.33332819422e-1) * z * x + x
    shrunk = exp(-2.0 * tl.abs(x), PRECISE)
    far = div(1.0 - shrunk, 1.0 + shrunk, PRECISE)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def sigmoid(x, PRECISE: tl.constexpr):
    return div(1.0, 1.0 + exp(-x, PRECISE), PRECISE)


@triton.jit
def silu(x, PRECISE: tl.constexpr):
    return div(x, 1.0 + exp(-x, PRECISE), PRECISE)


@triton.jit
def relu(x):
    """NaN stays NaN."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def hardsigmoid(x, PRECISE: tl.constexpr):
    return div(_gate(x), 6.0, PRECISE)


@triton.jit
def hardswish(x, PRECISE: tl.constexpr):
    return div(x * _gate(x), 6.0, PRECISE)


@triton.jit
def row_sum(x):
    """Sum of each row of a tile, in a column."""
    return tl.sum(x, axis=1, keep_dims=True)


@triton.jit
def row_max(x):
    """NaN stays NaN."""
    return tl.reduce(x, 1, maximum, keep_dims=True)


@triton.jit
def _gate(x):
    return minimum(maximum(x + 3.0, 0.0), 6.0)


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
