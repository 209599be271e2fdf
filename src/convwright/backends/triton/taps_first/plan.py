"""The plan of the kernels that sum taps first."""

from __future__ import annotations

from convwright.backends.triton.launching.sequence_plan import NamedOperandsPlan, Operand, SequencePlan
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.fusing import has_extended_epilogue


class TapsFirstPlan(SequencePlan):
    """Runs one configuration of the kernels that sum taps first."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        forward = candidate.problem.direction is Direction.FORWARD
        added = (Operand.BIAS, Operand.RESIDUAL) if forward else ()
        sums = (Operand.FIRST, Operand.SECOND, Operand.WORKSPACE)
        return [sums, (Operand.WORKSPACE, *added, Operand.OUT)]


class TapsFirstGradientPlan(NamedOperandsPlan):
    """Runs a configuration that multiplies dy by an activation's derivative."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        sums, outputs = TapsFirstPlan.operands(candidate)
        return [(*sums, Operand.Z), outputs]


def plan_class(candidate: Candidate) -> type[TapsFirstPlan] | type[TapsFirstGradientPlan]:
    return TapsFirstGradientPlan if has_extended_epilogue(candidate.problem) else TapsFirstPlan
