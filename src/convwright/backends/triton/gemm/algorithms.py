"""The algorithms of an implicit GEMM that multiplies by a weight, by the arithmetic of its kernel."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.backends.triton.gemm.tiles import Tile
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic, DType

DTYPES = (DType.FP16, DType.BF16, DType.FP32)
MOST_TILES = 8
_GROUP_M = 8


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One arithmetic of the kernel; ``packed`` means that ``prepare`` rounds or splits the weight, not the kernel."""

    name: str
    arithmetic: Arithmetic
    packed: bool = False
    tiles: int = MOST_TILES

    @property
    def id(self) -> str:
        return f"triton/{self.name}"

    @property
    def split(self) -> bool:
        """Whether the kernel loads two numbers for each weight."""
        return self.packed and self.arithmetic is Arithmetic.TF32X3


def algorithms_of(kernel: str, dtype: DType) -> tuple[Algorithm, ...]:
    """A kernel's algorithms for a storage type; for one that none serves, the first, to refuse by its name."""
    if dtype is DType.FP32:
        few = MOST_TILES // 2
        return (
            Algorithm(f"{kernel}-3xtf32", Arithmetic.TF32X3, tiles=few),
            Algorithm(f"{kernel}-3xtf32-packed", Arithmetic.TF32X3, packed=True, tiles=few),
            Algorithm(f"{kernel}-tf32", Arithmetic.TF32, tiles=few),
            Algorithm(f"{kernel}-tf32-packed", Arithmetic.TF32, packed=True, tiles=few),
        )
    return (Algorithm(kernel, Arithmetic.BF16_ACC32 if dtype is DType.BF16 else Arithmetic.FP16_ACC32),)


def algorithm_of(candidate: Candidate, kernel: str) -> Algorithm:
    """That of one of a kernel's candidates."""
    return {each.name: each for each in algorithms_of(kernel, candidate.problem.dtype)}[candidate.algorithm]


def arithmetic_constants(algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """What a kernel is told of how it multiplies."""
    return {
        "SPLIT": algorithm.arithmetic is Arithmetic.TF32X3, "PACKED": algorithm.packed,
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP_M": _GROUP_M,
    }  # fmt: skip
