"""The kernel of an input's gradient, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.input_gradient.algorithms import KERNEL
from convwright.backends.triton.input_gradient.offers import blocks, constants
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.packing.call import turned_rows_call
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``: the product, and what packs the weight."""
    from convwright.backends.triton.input_gradient.kernel import input_gradient

    problem, tile = candidate.problem, Tile.of(candidate)
    specs = {"dy": problem.y, "w": problem.w, "dx": problem.x}
    pointers = {name: (problem.dtype.value, spec.alignment) for name, spec in specs.items()}
    algorithm = algorithm_of(candidate, KERNEL)
    packing = (turned_rows_call(problem, split=algorithm.split),) if algorithm.packed else ()
    told = constants(problem, algorithm, tile)
    product = KernelCall(input_gradient, pointers, told, blocks(problem, tile), tile.warps, tile.stages, tile.regs)
    return product, *packing
