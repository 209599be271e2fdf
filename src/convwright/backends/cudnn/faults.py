"""Problems on which cuDNN crashes or errs, found by ``benchmarks/degenerate.py`` on an H200 (cuDNN 9.19)."""

from __future__ import annotations

from convwright.core.direction import Direction
from convwright.core.limits import beyond_32_bits
from convwright.core.problem import ConvProblem


def fault_of(problem: ConvProblem) -> str | None:
    """Why cuDNN must not run ``problem``; None if no fault is known.

    If a tap of a weight gradient reads only padding, cuDNN's heuristics may crash (SIGSEGV), and engines 1 and 20 leave
    elements unwritten. Engines 1, 18 and 20 compute wrong weight gradients with uneven padding. If an output reads only
    padding, engines 26, 29, 73, 76 and algorithm 1 of input gradients leave elements unwritten, or add memory that lies
    beside the operands.
    """
    if problem.direction is Direction.BACKWARD_WEIGHT and problem.has_idle_taps:
        return "cuDNN crashes on some weight gradients where a tap reads only padding"
    if problem.direction is Direction.BACKWARD_WEIGHT and any(low != high for low, high in problem.padding):
        return "cuDNN computes wrong results for some weight gradients with uneven padding"
    if problem.has_idle_outputs:
        return "cuDNN computes wrong results for some problems where an output reads only padding"
    return beyond_32_bits(problem)


def fault_of_compiled(problem: ConvProblem) -> str | None:
    """The same for engines that are compiled at run time (7, 71)."""
    if problem.has_idle_taps:
        return "computes wrong results where a tap reads only padding"
    if problem.groups > 1 and problem.k // problem.groups % 8:
        return "computes wrong results for some groups whose output channels are not a multiple of 8"
    return None
