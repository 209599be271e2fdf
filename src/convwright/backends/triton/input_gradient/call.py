"""The kernel of an input's gradient, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.input_gradient.offers import KERNEL, blocks, constants
from convwright.backends.triton.kernel_call import KernelCall
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.input_gradient.kernel import input_gradient

    problem, tile = candidate.problem, Tile.of(candidate)
    specs = {"dy": problem.y, "w": problem.w, "dx": problem.x}
    pointers = {name: (problem.dtype.value, spec.alignment) for name, spec in specs.items()}
    told = constants(problem, algorithm_of(candidate, KERNEL), tile)
    return (KernelCall(input_gradient, pointers, told, blocks(problem, tile), tile.warps, tile.stages, tile.regs),)
