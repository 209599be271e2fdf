"""How kernels begin that the GPU may launch before the one ahead of them in their stream has ended."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@triton.jit
def wait_for_the_kernel_ahead(OVERLAPS: tl.constexpr):
    """Behind this, with which every kernel begins, all that kernels ahead of it read and write is done. What its launch
    takes has passed meanwhile."""
    if OVERLAPS:
        gdc_wait()
