"""The kernel for resizing as a backend."""

from __future__ import annotations

from convwright.backends.triton.by_role.backend import RoleKernels
from convwright.backends.triton.resize.offers import ALGORITHM, kernel_call, offers


class TritonResize(RoleKernels):
    """One kernel, compiled for the sizes, strides and positions of a problem."""

    algorithm = ALGORITHM
    offers = staticmethod(offers)
    kernel_call = staticmethod(kernel_call)
