"""The kernels of a weight's gradient on staged operands, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.parts.call import sum_call
from convwright.backends.triton.parts.sums import is_summed
from convwright.backends.triton.staged_weight_gradient.algorithms import algorithm_of
from convwright.backends.triton.staged_weight_gradient.offers import blocks, constants
from convwright.backends.triton.staged_weight_gradient.staging import (
    BLOCK,
    PIXELS_AT_ONCE,
    staged_gradient,
    staged_input,
)
from convwright.backends.triton.staged_weight_gradient.tiles import StagedTile
from convwright.core.candidate import Candidate

_NUMBERS = ("fp16", 16)  # where a kernel has laid them
_WARPS = 8


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``, in this order: what looks for the largest numbers of the
    input and of the output's gradient, what stages both, the product, and what sums up its parts."""
    from convwright.backends.triton.staged_weight_gradient.kernel import (
        largest_of_channels,
        staged_by_channels,
        staged_weight_gradient,
    )

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), StagedTile.of(candidate)
    x, dy = staged_input(problem, algorithm), staged_gradient(problem, algorithm)
    dtype = problem.dtype.value
    operands = {"x": (dtype, problem.x.alignment), "dy": (dtype, problem.y.alignment), "workspace": _NUMBERS}
    told = {"X": x, "DY": dy, "BP": PIXELS_AT_ONCE, "BC": BLOCK}
    largest = KernelCall(largest_of_channels, operands, told, x.searchers + dy.searchers, _WARPS, 1)
    staged = KernelCall(staged_by_channels, operands, told, x.stagers + dy.stagers, _WARPS, 1)
    summed = is_summed(problem, tile.parts)
    product = KernelCall(
        staged_weight_gradient,
        {"workspace": _NUMBERS, "out": WORKSPACE if summed else (dtype, problem.w.alignment)},
        constants(problem, algorithm, tile), blocks(problem, tile), tile.warps, tile.stages,
    )  # fmt: skip
    return (largest, staged, product, *[sum_call(problem, tile.parts)] * summed)
