"""What a plan computes in planes, even if channels last is faster."""

from __future__ import annotations

from enum import StrEnum

from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.problem import Problem
from convwright.core.tensor_spec import Layout


class Planes(StrEnum):
    """Nothing, sums over an image as in group norm, or everything.

    On a CPU, PyTorch's channels-last calls may err twice as much as those in planes, and its sums over large images err
    ten times as much.
    """

    FREE = "free"
    SUMS = "sums"
    ALL = "all"

    def excludes(self, problem: Problem) -> bool:
        """Whether the problem is one in channels last that must be computed in planes."""
        if self is Planes.FREE or isinstance(problem, CopyProblem):
            return False
        if self is Planes.SUMS and not (isinstance(problem, PointwiseProblem) and max(problem.row, default=0) > 1):
            return False
        return any(spec.layout is Layout.NHWC for spec in problem.operands.values())
