"""The kernels of products on a staged input, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import blocks, output_blocks, output_constants, writing_sums
from convwright.backends.triton.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.staged_gemm.algorithms import ALGORITHM
from convwright.backends.triton.staged_gemm.offers import (
    constants,
    packing_constants,
    staging_blocks,
    staging_constants,
)
from convwright.core.candidate import Candidate

_PARTS = ("fp16", 16)  # of numbers, where a kernel has laid them
_WARPS = 4


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``: what stages the input, the products, where they are
    computed in parts their sum, and what splits the weight."""
    from convwright.backends.triton.implicit_gemm.kernel import output_of_parts
    from convwright.backends.triton.staged_gemm.kernel import split_weight, staged_gemm, staged_input

    problem, tile = candidate.problem, Tile.of(candidate)
    x, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    of_any = problem.dtype.value, problem.dtype.nbytes  # weights and biases, of whose address nothing is assumed
    staged = KernelCall(
        staged_input,
        {"x": x, "staged": _PARTS},
        staging_constants(problem, tile),
        staging_blocks(problem, tile),
        _WARPS,
        1,
    )
    packed = KernelCall(
        split_weight, {"w": of_any, "packed": _PARTS}, packing_constants(problem, tile),
        problem.k, _WARPS, 1,
    )  # fmt: skip

    summed = writing_sums(problem) if tile.in_parts else problem
    pointers = {
        "staged": _PARTS, "w": _PARTS, "bias": of_any, "residual": y,
        "y": WORKSPACE if tile.in_parts else y,
    }  # fmt: skip
    products = KernelCall(
        staged_gemm, pointers, constants(summed, tile), blocks(problem, tile), tile.warps, tile.stages, tile.regs
    )
    if not tile.in_parts:
        return staged, products, packed
    told = output_constants(problem, ALGORITHM, tile) | {"scale": None}
    added = {"sums": WORKSPACE, "bias": of_any, "residual": y, "y": y}
    return staged, products, KernelCall(output_of_parts, added, told, output_blocks(problem), _WARPS, 1), packed
