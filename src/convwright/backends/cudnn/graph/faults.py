"""Engines of cuDNN that compute wrong results, as a campaign of degenerate problems found on an H200 (cuDNN 9.19).

Where a filter tap, or an output, meets padding alone, the gradient of that tap and that output are exact zeros. These
engines leave memory unwritten there, or add what lies beside the operands. ``benchmarks/degenerate.py`` finds them.
"""

from __future__ import annotations

from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem

_WRONG_WEIGHT_GRADIENTS = frozenset({1, 20})


def fault_of(problem: ConvProblem, engine: int, *, compiles: bool) -> str | None:
    """What is wrong with an engine's results for ``problem``; None where nothing is known to be."""
    is_suspect = engine in _WRONG_WEIGHT_GRADIENTS if problem.direction is Direction.BACKWARD_WEIGHT else compiles
    if not is_suspect or not _meets_padding_alone(problem):
        return None
    what = "a tap" if problem.direction is Direction.BACKWARD_WEIGHT else "an output"
    return f"computes wrong results where {what} meets padding alone"


def _meets_padding_alone(problem: ConvProblem) -> bool:
    return any(axis.taps_met() < axis.taps or axis.outputs_met() < axis.out for axis in problem.axes)
