"""The algorithms of products on folded rows of taps, by their arithmetic."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.staging.algorithms import scaled, split
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic, DType

KERNEL = "folded-gemm"
_OF_DTYPE = {
    DType.FP16: (Algorithm(KERNEL, Arithmetic.FP16_ACC32),),
    DType.BF16: (Algorithm(KERNEL, Arithmetic.BF16_ACC32),),
    DType.FP32: (split(KERNEL), scaled(KERNEL)),
}
DTYPES = tuple(_OF_DTYPE)


def algorithms_of(dtype: DType) -> tuple[Algorithm, ...]:
    """Those for a storage type; for one that none serves, the first, to refuse by its name."""
    return _OF_DTYPE.get(dtype, _OF_DTYPE[DType.FP16])


def algorithm_of(candidate: Candidate) -> Algorithm:
    return {each.name: each for each in algorithms_of(candidate.problem.dtype)}[candidate.algorithm]
