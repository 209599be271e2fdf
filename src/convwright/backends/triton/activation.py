"""What is applied to a sum in fp32 before it is stored, and its derivative, as PyTorch's own functions compute them."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activated(total, ACTIVATION: tl.constexpr):
    """``total`` behind the activation of that name; a comparison, unlike a maximum, keeps NaN."""
    if ACTIVATION == "relu":
        total = tl.where(total < 0, 0.0, total)
    elif ACTIVATION == "silu":
        total = total / (1.0 + tl.exp(-total))
    elif ACTIVATION == "gelu":
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == "hardswish":
        gate = total + 3.0
        gate = tl.where(gate < 0, 0.0, gate)
        total = total * tl.where(gate > 6, 6.0, gate) / 6.0
    return total


@triton.jit
def derived(dy, z, ACTIVATION: tl.constexpr):
    """``dy`` in fp32, times the derivative at ``z`` of the activation of that name."""
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
