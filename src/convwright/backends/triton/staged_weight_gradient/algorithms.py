"""The algorithms of a weight's gradient on staged operands, by their arithmetic."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic

KERNEL = "staged-weight-gradient"
SPLIT = Algorithm(f"{KERNEL}-3xfp16", Arithmetic.FP16X3, packed=True)
SCALED = Algorithm(f"{KERNEL}-scaled-fp16", Arithmetic.SCALED_FP16, packed=True)
ALGORITHMS = (SPLIT, SCALED)
_BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def algorithm_of(candidate: Candidate) -> Algorithm:
    return _BY_NAME[candidate.algorithm]
