"""The beginning of kernels that the GPU may start before the previous kernel of their stream ends."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@triton.jit
def wait_for_the_kernel_ahead(OVERLAPS: tl.constexpr):
    """Every kernel begins with this. Afterwards, all reads and writes of previous kernels are done. The latency of the
    launch has passed meanwhile."""
    if OVERLAPS:
        gdc_wait()
