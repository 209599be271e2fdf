"""Loads in fp32 for kernels without matrix products."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def loaded(at, mask, MASKED: tl.constexpr):
    """The elements at these pointers in fp32, zero where the mask is false."""
    value = tl.load(at, mask=mask, other=0.0) if MASKED else tl.load(at)
    return value.to(tl.float32)
