"""The implicit GEMM's kernels, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.algorithms import KERNEL
from convwright.backends.triton.implicit_gemm.offers import (
    blocks,
    constants,
    output_blocks,
    output_constants,
    writing_sums,
)
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.packing.call import rows_call
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``: the product; where it is computed in parts, their sum; and
    what packs the weight."""
    from convwright.backends.triton.implicit_gemm.kernel import implicit_gemm, output_of_parts

    problem, tile = candidate.problem, Tile.of(candidate)
    # The residual lies as the output does; of the bias and the scale, whose loads are few, nothing is assumed.
    x, w, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.w, problem.y))
    channel = (problem.dtype.added.value, problem.dtype.added.nbytes)
    pointers = {"x": x, "w": w, "bias": channel, "residual": y, "y": y}
    # A scale that is not there is no operand.
    scale, no_scale = ({"scale": channel}, {}) if problem.epilogue.scale else ({}, {"scale": None})
    algorithm, grid = algorithm_of(candidate, KERNEL), blocks(problem, tile)
    packing = (rows_call(problem, split=algorithm.split),) if algorithm.packed else ()
    if not tile.in_parts:
        told = constants(problem, algorithm, tile) | no_scale
        whole = KernelCall(implicit_gemm, pointers | scale, told, grid, tile.warps, tile.stages, tile.regs)
        return whole, *packing
    told, parts = constants(writing_sums(problem), algorithm, tile) | {"scale": None}, {**pointers, "y": WORKSPACE}
    product = KernelCall(implicit_gemm, parts, told, grid, tile.warps, tile.stages, tile.regs)
    added = {"sums": WORKSPACE, **{name: pointers[name] for name in ("bias", "residual", "y")}, **scale}
    told = output_constants(problem, algorithm, tile) | no_scale
    return product, KernelCall(output_of_parts, added, told, output_blocks(problem), 4, 1), *packing
