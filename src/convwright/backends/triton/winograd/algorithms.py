"""Winograd's algorithms, by where the transformed weight is split into two TF32 numbers."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic

KERNEL = "winograd"
_TILES = 2

# None in TF32 by itself: rounding behind the transforms errs 1.7 times as much as ahead of them, up to 2.3 times at the
# worst place, and so little is left to multiply then that reading it takes as long.
ALGORITHMS = (
    Algorithm(f"{KERNEL}-3xtf32", Arithmetic.TF32X3, tiles=_TILES),
    Algorithm(f"{KERNEL}-3xtf32-packed", Arithmetic.TF32X3, packed=True, tiles=_TILES),
)


def algorithm_of(candidate: Candidate) -> Algorithm:
    return {each.name: each for each in ALGORITHMS}[candidate.algorithm]
