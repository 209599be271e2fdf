"""The forward convolution that the kernels compute."""

from __future__ import annotations

from dataclasses import replace

from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.turned import turned


def forward_of(problem: ConvProblem) -> ConvProblem:
    """Of an input's gradient that of dy, where the taps of a depthwise weight are mirrored and nothing else is."""
    if problem.direction is Direction.FORWARD:
        return problem
    return replace(turned(problem, problem.w), flip=not problem.flip)
