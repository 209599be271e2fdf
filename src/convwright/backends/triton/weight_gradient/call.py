"""The kernels of the weight's gradient, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.parts.call import sum_call
from convwright.backends.triton.weight_gradient.algorithms import algorithm_named
from convwright.backends.triton.weight_gradient.offers import blocks, constants, pack_blocks, pack_constants
from convwright.backends.triton.weight_gradient.tiles import PartedTile
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``, in this order: where dy is packed, the kernel that does it;
    the product; and what sums up its parts."""
    from convwright.backends.triton.weight_gradient.kernel import packed_gradient, weight_gradient

    problem, tile = candidate.problem, PartedTile.of(candidate)
    summed = tile.summed(problem)
    algorithm = algorithm_named(candidate.algorithm, problem.dtype)
    x, dy, dw = ((problem.dtype.value, spec.alignment) for spec in (problem.x, problem.y, problem.w))
    pointers = {"x": x, "dy": WORKSPACE if algorithm.packed else dy, "out": WORKSPACE if summed else dw}
    told = constants(problem, algorithm, tile)
    product = KernelCall(weight_gradient, pointers, told, blocks(problem, tile), tile.warps, tile.stages, tile.regs)
    pack = KernelCall(
        packed_gradient, {"dy": dy, "packed": WORKSPACE}, pack_constants(problem), pack_blocks(problem), 4, 1
    )
    return (*[pack] * algorithm.packed, product, *[sum_call(problem, tile.parts)] * summed)
