"""Problems that cuDNN goes wrong on, as ``benchmarks/degenerate.py`` found on an H200 (cuDNN 9.19)."""

from __future__ import annotations

from convwright.core.direction import Direction
from convwright.core.limits import beyond_32_bits
from convwright.core.problem import ConvProblem


def fault_of(problem: ConvProblem) -> str | None:
    """Why cuDNN is not asked for anything; None where nothing is known against it.

    If a tap of a weight gradient meets padding alone, cuDNN's heuristics may crash (SIGSEGV), and engines 1, 20 leave
    elements unwritten; those and 18 are wrong where its padding is uneven. If an output meets padding alone, engines
    26, 29, 73, 76 and algorithm 1 of an input's gradient leave elements unwritten, or add what lies beside the
    operands.
    """
    if problem.direction is Direction.BACKWARD_WEIGHT and problem.has_idle_taps:
        return "cuDNN crashes on some weight gradients where a tap meets padding alone"
    if problem.direction is Direction.BACKWARD_WEIGHT and any(low != high for low, high in problem.padding):
        return "cuDNN computes wrong results of some weight gradients with uneven padding"
    if problem.has_idle_outputs:
        return "cuDNN computes wrong results on some problems where an output meets padding alone"
    return beyond_32_bits(problem)


def fault_of_compiled(problem: ConvProblem) -> str | None:
    """The same of engines that are compiled at run time (7, 71)."""
    if problem.has_idle_taps:
        return "computes wrong results where a tap meets padding alone"
    if problem.groups > 1 and problem.k // problem.groups % 8:
        return "computes wrong results of some groups whose outputs are no multiple of 8"
    return None
