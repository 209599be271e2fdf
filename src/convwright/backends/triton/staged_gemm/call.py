"""The kernels of products on a staged input, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import blocks, output_blocks, output_constants, writing_sums
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.staged_gemm.algorithms import algorithm_of
from convwright.backends.triton.staged_gemm.offers import (
    constants,
    packing_constants,
    staging_blocks,
    staging_constants,
)
from convwright.core.candidate import Candidate

_NUMBERS = ("fp16", 16)  # where a kernel has laid them
_WARPS = 4
_WEIGHTS_OF_A_WARP = 512


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``: what stages the input, the products, where they are
    computed in parts their sum, and what packs the weight."""
    from convwright.backends.triton.implicit_gemm.kernel import output_of_parts
    from convwright.backends.triton.staged_gemm.kernel import packed_weight, staged_gemm, staged_input

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), Tile.of(candidate)
    x, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    of_any = problem.dtype.value, problem.dtype.nbytes  # weights and biases, of whose address nothing is assumed
    packing = packing_constants(problem, algorithm, tile)
    staged = KernelCall(
        staged_input, {"x": x, "staged": _NUMBERS}, staging_constants(problem, algorithm, tile),
        staging_blocks(problem, algorithm, tile), _WARPS, 1,
    )  # fmt: skip
    packed = KernelCall(
        packed_weight, {"w": of_any, "packed": _NUMBERS}, packing, problem.k,
        max(packing["BLOCK"] // _WEIGHTS_OF_A_WARP, 1), 1,
    )  # fmt: skip

    summed, out = (writing_sums(problem), WORKSPACE) if tile.in_parts else (problem, y)
    pointers = {"staged": _NUMBERS, "w": _NUMBERS, "bias": of_any, "residual": y, "y": out}
    told = constants(summed, algorithm, tile)
    products = KernelCall(staged_gemm, pointers, told, blocks(problem, tile), tile.warps, tile.stages, tile.regs)
    if not tile.in_parts:
        return staged, products, packed
    summing = KernelCall(
        output_of_parts, {"sums": WORKSPACE, "bias": of_any, "residual": y, "y": y},
        output_constants(problem, algorithm, tile) | {"scale": None}, output_blocks(problem), _WARPS, 1,
    )  # fmt: skip
    return staged, products, summing, packed
