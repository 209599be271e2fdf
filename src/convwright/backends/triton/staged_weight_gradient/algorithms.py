"""The algorithms of a weight's gradient on staged operands, by their arithmetic."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.staging.algorithms import scaled, split
from convwright.core.candidate import Candidate

KERNEL = "staged-weight-gradient"
SPLIT, SCALED = split(KERNEL), scaled(KERNEL)
ALGORITHMS = (SPLIT, SCALED)
_BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def algorithm_of(candidate: Candidate) -> Algorithm:
    return _BY_NAME[candidate.algorithm]
