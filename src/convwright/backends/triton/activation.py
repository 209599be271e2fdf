"""What is applied to a sum in fp32 before it is stored, as PyTorch's own functions compute it."""
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
