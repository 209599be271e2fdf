"""The kernels of a weight's gradient in boxes, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.boxed_weight_gradient.offers import blocks, constants, maps
from convwright.backends.triton.boxed_weight_gradient.tiles import Tile
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.parts.call import sum_call
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """What the driver is asked to launch for ``candidate``: the product, and what adds its parts."""
    from convwright.backends.triton.boxed_weight_gradient.kernel import boxed_weight_gradient

    problem, tile = candidate.problem, Tile.of(candidate)
    x, dy = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    product = KernelCall(
        boxed_weight_gradient, {"x": x, "dy": dy, "sums": WORKSPACE}, constants(problem, tile), blocks(problem, tile),
        tile.warps, tile.stages, maps=maps(problem, tile),
    )  # fmt: skip
    return product, sum_call(problem, tile.parts)
