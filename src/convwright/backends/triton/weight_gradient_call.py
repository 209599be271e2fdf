"""The kernels of the weight's gradient, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.kernel_call import KernelCall
from convwright.backends.triton.weight_gradient import blocks, constants, sum_blocks, sum_constants
from convwright.backends.triton.weight_gradient_tiles import PartedTile
from convwright.core.candidate import Candidate

_WORKSPACE = ("fp32", 16)


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``, in this order: the product, and where it is computed in
    parts their sum."""
    from convwright.backends.triton.weight_gradient_kernel import sum_of_parts, weight_gradient

    problem, tile = candidate.problem, PartedTile.of(candidate)
    x, dy, dw = ((problem.dtype.value, spec.alignment) for spec in (problem.x, problem.y, problem.w))
    out = _WORKSPACE if tile.parts > 1 else dw
    told = constants(problem, candidate.arithmetic, tile)
    product = KernelCall(
        weight_gradient, {"x": x, "dy": dy, "out": out}, told, blocks(problem, tile), tile.warps, tile.stages, tile.regs
    )
    if tile.parts == 1:
        return (product,)
    pointers = {"sums": _WORKSPACE, "dw": dw}
    return product, KernelCall(sum_of_parts, pointers, sum_constants(problem, tile), sum_blocks(problem), 4, 1)
