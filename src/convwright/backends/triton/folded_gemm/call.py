"""The kernels of products on folded rows of taps, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.folded_gemm.algorithms import algorithm_of
from convwright.backends.triton.folded_gemm.folding import Folding
from convwright.backends.triton.folded_gemm.offers import (
    constants,
    held_constants,
    laying_constants,
)
from convwright.backends.triton.folded_gemm.tiles import FoldedTile
from convwright.backends.triton.implicit_gemm.tiles import tiles_of
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.core.candidate import Candidate
from convwright.core.dtype import DType

_NUMBERS_OF_A_WARP = 256


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """What the driver is asked to launch for ``candidate``: what lays the input and the weight, and the products."""
    from convwright.backends.triton.folded_gemm.held import held_gemm
    from convwright.backends.triton.folded_gemm.kernel import folded_operands
    from convwright.backends.triton.staged_gemm.kernel import staged_gemm

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), FoldedTile.of(candidate)
    x, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    of_any = problem.dtype.value, problem.dtype.nbytes  # weights and biases, of whose address nothing is assumed
    numbers = (DType.FP16 if problem.dtype is DType.FP32 else problem.dtype).value, 16  # where a kernel has laid them
    told = laying_constants(problem, algorithm)
    warps = _warps(max(told["X_BLOCK"], told["W_BLOCK"]))
    laid = KernelCall(
        folded_operands, {"x": x, "staged": numbers, "w": of_any, "packed": numbers}, told,
        Folding.of(problem, algorithm).rows + problem.k, warps, 1,
    )  # fmt: skip
    pointers = {"staged": numbers, "w": numbers, "bias": of_any, "residual": y, "y": y}
    if tile.programs is None:
        product, blocks = constants(problem, algorithm, tile), tiles_of(tile, problem)
        products = KernelCall(staged_gemm, pointers, product, blocks, tile.warps, tile.stages, tile.regs)
    else:  # whose one long loop has its stages, and no other
        product = held_constants(problem, algorithm, tile)
        products = KernelCall(held_gemm, pointers, product, tile.programs, tile.warps, 1, tile.regs)
    return laid, products


def _warps(numbers: int) -> int:
    """Of a program that lays so many."""
    return min(max(numbers // _NUMBERS_OF_A_WARP, 1), 16)
