"""The plan of weight gradients on staged operands."""

from __future__ import annotations

from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.backends.triton.parts.sums import is_summed
from convwright.backends.triton.staged_weight_gradient.offers import StagedTile, algorithm_of, staged_bytes
from convwright.core.candidate import Candidate


class StagedWeightGradientPlan(SequencePlan):
    """Runs one configuration of weight gradients on staged operands."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        both = (Operand.FIRST, Operand.SECOND, Operand.WORKSPACE)
        if is_summed(candidate.problem, StagedTile.of(candidate).parts):
            return [both, both, (Operand.WORKSPACE, Operand.SECOND_PART), (Operand.SECOND_PART, Operand.OUT)]
        return [both, both, (Operand.WORKSPACE, Operand.OUT)]

    @staticmethod
    def second_part_from(candidate: Candidate) -> int:
        return staged_bytes(candidate.problem, algorithm_of(candidate))


def plan_class(candidate: Candidate) -> type[StagedWeightGradientPlan]:
    return StagedWeightGradientPlan
