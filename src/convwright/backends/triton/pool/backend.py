"""Generated kernels as a backend for pooling."""

from __future__ import annotations

from convwright.backends.triton.by_role.backend import RoleKernels
from convwright.backends.triton.pool.offers import ALGORITHM, kernel_call, offers


class TritonPool(RoleKernels):
    """One generated kernel per pooling problem."""

    algorithm = ALGORITHM
    offers = staticmethod(offers)
    kernel_call = staticmethod(kernel_call)
