"""The one algorithm of products on a staged input."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.core.dtype import Arithmetic

KERNEL = "staged-gemm"
ALGORITHM = Algorithm(f"{KERNEL}-3xfp16", Arithmetic.FP16X3, packed=True)
