"""The algorithms of an implicit GEMM with a weight, by arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.backends.triton.gemm.tiles import Tile
from convwright.core.candidate import Candidate
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.policy import Policy

DTYPES = (DType.FP16, DType.BF16, DType.FP32)
NARROW_DTYPES = (DType.INT8, DType.FP8_E4M3, DType.FP8_E5M2)
MOST_TILES = 8
GROUP_M = 8  # row tiles that neighbouring programs share, so that their operand stays in the cache
# The dtype in which tensor cores sum one step from zero, if steps are added separately: they keep few bits in sums of
# fp8, and fp16 sums have only 11.
_STEPS_APART = {Arithmetic.FP8_ACC32: DType.FP32, Arithmetic.FP16_ACC16: DType.FP16}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One arithmetic of the kernel. ``packed``: a kernel before it rounds or splits the weight."""

    name: str
    arithmetic: Arithmetic
    packed: bool = False
    tiles: int = MOST_TILES

    @property
    def id(self) -> str:
        return f"triton/{self.name}"

    @property
    def split(self) -> bool:
        """Whether the kernel loads two numbers per weight."""
        return self.packed and self.arithmetic is Arithmetic.TF32X3


def algorithms_of(kernel: str, dtype: DType) -> tuple[Algorithm, ...]:
    """A kernel's algorithms for a storage type; if none supports it, the first, whose name a refusal needs."""
    if dtype is DType.FP32:
        few = MOST_TILES // 2
        return (
            Algorithm(f"{kernel}-3xtf32", Arithmetic.TF32X3, tiles=few),
            Algorithm(f"{kernel}-3xtf32-packed", Arithmetic.TF32X3, packed=True, tiles=few),
            Algorithm(f"{kernel}-tf32", Arithmetic.TF32, tiles=few),
            Algorithm(f"{kernel}-tf32-packed", Arithmetic.TF32, packed=True, tiles=few),
        )
    return (Algorithm(kernel, _ARITHMETIC.get(dtype, Arithmetic.FP16_ACC32)),)


_ARITHMETIC = {
    DType.BF16: Arithmetic.BF16_ACC32,
    DType.INT8: Arithmetic.INT8,
    DType.FP8_E4M3: Arithmetic.FP8_ACC32,
    DType.FP8_E5M2: Arithmetic.FP8_ACC32,
}


def algorithms_to_be_named(kernel: str, dtype: DType) -> tuple[Algorithm, ...]:
    """Algorithms in an arithmetic so coarse that they are offered only if the policy names it."""
    return (Algorithm(f"{kernel}-acc16", Arithmetic.FP16_ACC16),) if dtype is DType.FP16 else ()


def why_not_named(algorithm: Algorithm, dtype: DType, policy: Policy) -> str | None:
    """Why an algorithm is not offered because ``policy`` does not name its arithmetic; None if it does or need not."""
    coarse = algorithm.arithmetic
    if coarse is not Arithmetic.FP16_ACC16 or coarse in (policy.arithmetic or ()):
        return None
    named = f'Policy(arithmetic={{"{native_arithmetic(dtype, tf32=False)}", "{coarse}"}})'
    return f"computes in {coarse}, which the policy must name: {named}"


def algorithm_of(candidate: Candidate, kernel: str) -> Algorithm:
    """The algorithm of one of a kernel's candidates."""
    dtype = candidate.problem.dtype
    there = (*algorithms_of(kernel, dtype), *algorithms_to_be_named(kernel, dtype))
    return {each.name: each for each in there}[candidate.algorithm]


def arithmetic_constants(algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """Compile-time constants of the arithmetic."""
    return {
        "SPLIT": algorithm.arithmetic is Arithmetic.TF32X3, "PACKED": algorithm.packed,
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP_M": GROUP_M,
    }  # fmt: skip


def step_constants(algorithm: Algorithm) -> dict[str, str]:
    """Compile-time constants for adding the steps of a sum outside tensor cores."""
    return {"APART": str(_STEPS_APART.get(algorithm.arithmetic, ""))}
