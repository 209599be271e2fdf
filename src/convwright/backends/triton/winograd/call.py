"""Winograd's kernels, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.packing.call import transformed_call
from convwright.backends.triton.winograd.algorithms import KERNEL
from convwright.backends.triton.winograd.offers import (
    constants,
    transform_blocks,
    transform_constants,
    transform_warps,
)
from convwright.backends.triton.winograd.tiles import tiles_of
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall, KernelCall]:
    """What the driver is asked to launch for ``candidate``: the input's transform, the products, and the weight's
    transform."""
    from convwright.backends.triton.winograd.kernel import transformed_input, winograd

    problem, tile = candidate.problem, Tile.of(candidate)
    x, y = ((problem.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    transform = KernelCall(
        transformed_input, {"x": x, "points": WORKSPACE}, transform_constants(problem), transform_blocks(problem),
        transform_warps(problem), 1,
    )  # fmt: skip
    # The residual lies as the output does, and a prepared weight as ``prepare`` has laid it; of the bias, whose loads
    # are few, nothing is assumed.
    bias = problem.dtype.value, problem.dtype.nbytes
    pointers = {"points": WORKSPACE, "w": WORKSPACE, "x": x, "bias": bias, "residual": y, "y": y}
    algorithm = algorithm_of(candidate, KERNEL)
    told = constants(problem, algorithm, tile)
    products = KernelCall(winograd, pointers, told, tiles_of(tile, problem), tile.warps, tile.stages, tile.regs)
    return transform, products, transformed_call(problem, packed=algorithm.packed)
