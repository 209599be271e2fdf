"""The kernels of a weight's gradient on staged operands, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.parts.call import sum_call
from convwright.backends.triton.staged_weight_gradient.algorithms import algorithm_of
from convwright.backends.triton.staged_weight_gradient.offers import (
    blocks,
    constants,
    gradient_call,
    input_call,
    largest_blocks,
    largest_constants,
    staging_blocks,
    staging_constants,
)
from convwright.backends.triton.staged_weight_gradient.staging import staged_gradient, staged_input
from convwright.backends.triton.staged_weight_gradient.tiles import StagedTile
from convwright.core.candidate import Candidate

_NUMBERS = ("fp16", 16)  # where a kernel has laid them
_WARPS = 8


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``, in this order: what looks for the largest numbers of the
    input and of the output's gradient, what stages both, the product, and where it is computed in parts their sum."""
    from convwright.backends.triton.staged_weight_gradient.kernel import (
        largest_of_channels,
        staged_by_channels,
        staged_weight_gradient,
    )

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), StagedTile.of(candidate)
    operands = (
        (problem.x, input_call(problem), staged_input(problem, algorithm)),
        (problem.y, gradient_call(problem), staged_gradient(problem, algorithm)),
    )
    largest, staged = list[KernelCall](), list[KernelCall]()
    for spec, read, into in operands:
        pointers = {"x": (spec.dtype.value, spec.alignment), "workspace": _NUMBERS}
        told = largest_constants(read, into)
        largest.append(KernelCall(largest_of_channels, pointers, told, largest_blocks(into), _WARPS, 1))
        told = staging_constants(read, into)
        staged.append(KernelCall(staged_by_channels, pointers, told, staging_blocks(into), _WARPS, 1))
    in_parts = tile.parts > 1
    product = KernelCall(
        staged_weight_gradient,
        {"workspace": _NUMBERS, "out": WORKSPACE if in_parts else (problem.dtype.value, problem.w.alignment)},
        constants(problem, algorithm, tile), blocks(problem, tile), tile.warps, tile.stages,
    )  # fmt: skip
    return (*largest, *staged, product, *[sum_call(problem, tile.parts)] * in_parts)
