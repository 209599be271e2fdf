"""Generated kernels as a backend for expressions and copies."""

from __future__ import annotations

from convwright.backends.triton.by_role.backend import RoleKernels
from convwright.backends.triton.elementwise.offers import ALGORITHM, kernel_call, offers


class TritonElementwise(RoleKernels):
    """One kernel for each expression, or copy, whose source is generated."""

    algorithm = ALGORITHM
    offers = staticmethod(offers)
    kernel_call = staticmethod(kernel_call)
