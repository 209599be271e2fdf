"""Problems that cuDNN's graph API goes wrong on, as ``benchmarks/degenerate.py`` found on an H200 (cuDNN 9.19).

Where a filter tap, or an output, meets padding alone, the gradient of that tap and that output are exact zeros.
"""

from __future__ import annotations

from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem


def graph_fault(problem: ConvProblem) -> str | None:
    """Why cuDNN is asked for no engine: its heuristics crash on some of these (SIGSEGV), and engines 1 and 20 leave
    gradients unwritten."""
    if problem.direction is not Direction.BACKWARD_WEIGHT or not _meets_padding_alone(problem):
        return None
    return "cuDNN crashes on some weight gradients where a tap or an output meets padding alone"


def engine_fault(problem: ConvProblem, *, compiles: bool) -> str | None:
    """Why an engine is left out: those compiled at run time (7, 71) add what lies beside the operands."""
    if not compiles or not _meets_padding_alone(problem):
        return None
    return "computes wrong results where an output meets padding alone"


def _meets_padding_alone(problem: ConvProblem) -> bool:
    return any(axis.taps_met() < axis.taps or axis.outputs_met() < axis.out for axis in problem.axes)
