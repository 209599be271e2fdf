"""Winograd's algorithms, by where the transformed weight is split into two TF32 numbers."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithms_of
from convwright.core.dtype import Arithmetic, DType

KERNEL = "winograd"

# None in TF32 by itself: rounding behind the transforms errs 1.7 times as much as ahead of them, up to 2.3 times at the
# worst place, and so little is left to multiply then that reading it takes as long.
ALGORITHMS = tuple(each for each in algorithms_of(KERNEL, DType.FP32) if each.arithmetic is Arithmetic.TF32X3)
