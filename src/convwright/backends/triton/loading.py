"""What kernels that multiply no matrices read, in fp32."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def loaded(at, mask, MASKED: tl.constexpr):
    """What lies there in fp32; zeros where the mask says no."""
    value = tl.load(at, mask=mask, other=0.0) if MASKED else tl.load(at)
    return value.to(tl.float32)
