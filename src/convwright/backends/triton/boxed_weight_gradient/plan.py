"""The plan of weight gradients with operands in boxes."""

from __future__ import annotations

from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate


class BoxedWeightGradientPlan(SequencePlan):
    """Runs one configuration of weight gradients with operands in boxes."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        return [(Operand.FIRST, Operand.SECOND, Operand.WORKSPACE), (Operand.WORKSPACE, Operand.OUT)]


def plan_class(candidate: Candidate) -> type[BoxedWeightGradientPlan]:
    return BoxedWeightGradientPlan
