"""The algorithms that multiply staged numbers of fp32, by their arithmetic."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.core.dtype import Arithmetic


def split(kernel: str) -> Algorithm:
    """Each number as two of fp16: as accurate as fp32."""
    return Algorithm(f"{kernel}-{Arithmetic.FP16X3}", Arithmetic.FP16X3, packed=True)


def scaled(kernel: str) -> Algorithm:
    """Each number as one: as near as TF32."""
    return Algorithm(f"{kernel}-{Arithmetic.SCALED_FP16}", Arithmetic.SCALED_FP16, packed=True)


def numbers_of(algorithm: Algorithm) -> int:
    """How many of fp16 one of fp32 becomes."""
    return 2 if algorithm.arithmetic is Arithmetic.FP16X3 else 1
