"""The kernel that adds up parts, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.parts.sums import SUM_WARPS, is_turned, sum_blocks, sum_constants
from convwright.core.problem import ConvProblem


def sum_call(problem: ConvProblem, parts: int) -> KernelCall:
    """What the driver is asked to launch behind the kernel that writes so many ``parts``."""
    from convwright.backends.triton.parts.kernel import sum_of_parts, turned_sum_of_parts

    dtype = problem.dtype
    pointers = {"sums": WORKSPACE, "dw": (dtype.value, problem.w.alignment)}
    told: dict[str, object] = {**sum_constants(problem, parts)}
    if is_turned(problem, parts):
        return KernelCall(turned_sum_of_parts, pointers, told, sum_blocks(problem, parts), SUM_WARPS, 1)
    if problem.epilogue.bias:
        pointers["db"] = (dtype.value, dtype.nbytes)
    else:
        told["db"] = None
    return KernelCall(sum_of_parts, pointers, told, sum_blocks(problem, parts), SUM_WARPS, 1)
