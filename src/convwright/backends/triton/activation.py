"""Activations and their derivatives in fp32, applied to a sum before it is stored. They compute what PyTorch's do."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _share_below(z):
    """The normal distribution's share below ``z``, for results of at most 16 bits: 2 to the power of a polynomial with
    the least error from 0 to 6. The error is at most 2e-7, and down to -5 at most 9e-5 of the result; there 1 + erf in
    fp32 keeps few digits. GELU takes 13 instructions (sm_90), with erf 32."""
    t = tl.abs(z)
    power = -5.755009624408558e-07 * t + 1.0267782272421755e-05
    power = power * t - 3.916886271326803e-05
    power = power * t - 0.000506918819155544
    power = power * t + 0.007554568350315094
    power = power * t - 0.05283220857381821
    power = power * t - 0.45910122990608215
    power = power * t - 1.1511175632476807
    beyond = tl.exp2(power * t - 0.9999997615814209)
    return tl.where(z < 0, beyond, 1.0 - beyond)


@triton.jit
def activated(total, ACTIVATION: tl.constexpr, dtype: tl.constexpr):
    """``total`` after the named activation, to be stored as ``dtype``. NaN stays NaN."""
    if ACTIVATION == "relu":
        total = tl.where(total < 0, 0.0, total)
    elif ACTIVATION == "silu":
        total = total / (1.0 + tl.exp2(total * -1.4426950408889634))
    elif ACTIVATION == "gelu" and dtype != tl.float32:
        total *= _share_below(total)
    elif ACTIVATION == "gelu":
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == "hardswish":
        gate = tl.maximum(total + 3.0, 0.0, propagate_nan=tl.PropagateNan.ALL)
        total = total * tl.minimum(gate, 6.0, propagate_nan=tl.PropagateNan.ALL) / 6.0
    return total


@triton.jit
def derived(dy, z, ACTIVATION: tl.constexpr):
    """``dy`` in fp32, times the derivative of the named activation at ``z``."""
    if ACTIVATION == "relu":
        dy = tl.where(z <= 0, 0.0, dy)
    elif ACTIVATION == "silu":
        gate = 1.0 / (1.0 + tl.exp(-z))
        dy = dy * gate * (1.0 + z * (1.0 - gate))
    elif ACTIVATION == "gelu":
        below = 0.5 * (1.0 + tl.erf(z * 0.7071067811865476))
        dy = dy * (below + z * (tl.exp(-0.5 * z * z) * 0.3989422804014327))
    elif ACTIVATION == "hardswish":
        dy = tl.where(z <= -3.0, 0.0, tl.where(z < 3.0, dy * (z / 3.0 + 0.5), dy))
    return dy
