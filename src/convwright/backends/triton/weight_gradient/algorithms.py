"""The algorithms of the weight's gradient, by the arithmetic of their kernel, and how a packed gradient lies."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.backends.triton.operands import pixel_count
from convwright.backends.triton.parts.sums import SUM_BYTES
from convwright.core.dtype import Arithmetic, DType
from convwright.core.problem import ConvProblem

MOST_CONFIGURATIONS = 8
_PITCH = 64  # a multiple of which are all addresses of a packed gradient's rows, in numbers


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One arithmetic of the kernel; ``packed`` means that a kernel ahead of it turns dy around and splits it."""

    name: str
    arithmetic: Arithmetic
    packed: bool = False
    configurations: int = MOST_CONFIGURATIONS

    @property
    def id(self) -> str:
        return f"triton/{self.name}"

    @property
    def split(self) -> bool:
        """Whether each number is multiplied as two."""
        return self.arithmetic is Arithmetic.TF32X3

    @property
    def turned(self) -> bool:
        """Whether dy goes through registers on its way into tensor cores, which take fp32 along the sum only."""
        return self.arithmetic in (Arithmetic.TF32, Arithmetic.TF32X3) and not self.packed


_OF_DTYPE = {
    DType.FP16: (Algorithm("weight-gradient", Arithmetic.FP16_ACC32),),
    DType.BF16: (Algorithm("weight-gradient", Arithmetic.BF16_ACC32),),
    DType.FP32: (
        Algorithm("weight-gradient-3xtf32", Arithmetic.TF32X3, configurations=MOST_CONFIGURATIONS // 2),
        Algorithm(
            "weight-gradient-3xtf32-packed", Arithmetic.TF32X3, packed=True, configurations=MOST_CONFIGURATIONS // 2
        ),
        Algorithm("weight-gradient-tf32", Arithmetic.TF32),
    ),
}
DTYPES = tuple(_OF_DTYPE)


def algorithms(dtype: DType) -> tuple[Algorithm, ...]:
    """The algorithms for a storage type; for one that none serves, the first, to refuse by its name."""
    return _OF_DTYPE.get(dtype, _OF_DTYPE[DType.FP16])


def algorithm_named(name: str, dtype: DType) -> Algorithm:
    return {algorithm.name: algorithm for algorithm in algorithms(dtype)}[name]


def pitch(problem: ConvProblem) -> int:
    """Pixels from one channel of a packed gradient to the next."""
    return -(-pixel_count(problem) // _PITCH) * _PITCH


def packed_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """What both parts of a packed gradient take, at the workspace's start."""
    return 2 * problem.k * pitch(problem) * SUM_BYTES if algorithm.packed else 0
