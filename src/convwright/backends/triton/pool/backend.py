"""Generated kernels as a backend for pooling."""

from __future__ import annotations

from convwright.backends.triton.generated.backend import GeneratedKernels
from convwright.backends.triton.pool.offers import ALGORITHM, kernel_call, offers


class TritonPool(GeneratedKernels):
    """One kernel for each pooling problem, whose source is generated."""

    algorithm = ALGORITHM
    offers = staticmethod(offers)
    kernel_call = staticmethod(kernel_call)
