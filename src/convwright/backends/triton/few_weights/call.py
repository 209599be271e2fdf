"""The kernels of few weights' gradients, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.few_weights.offers import blocks, constants
from convwright.backends.triton.few_weights.tiles import Patch
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.parts.call import sum_call
from convwright.core.candidate import Candidate
from convwright.core.fusing import has_extended_epilogue


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``: the sums, and where there are parts, those added up."""
    from convwright.backends.triton.few_weights.kernel import few_weights

    problem, patch = candidate.problem, Patch.of(candidate)
    dtype = problem.dtype
    x, dy, dw = ((dtype.value, spec.alignment) for spec in (problem.x, problem.y, problem.w))
    pointers = {"x": x, "dy": dy, "out": WORKSPACE if patch.parts > 1 else dw}
    told: dict[str, object] = {**constants(problem, patch)}
    if has_extended_epilogue(problem):
        pointers |= {"z": dy, "db": (dtype.value, dtype.nbytes)}
    else:
        told |= {"z": None, "db": None}
    sums = KernelCall(few_weights, pointers, told, blocks(problem, patch), patch.warps, 1)
    return (sums, *[sum_call(problem, patch.parts)] * (patch.parts > 1))
