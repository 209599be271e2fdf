"""The plan of weight gradients."""

from __future__ import annotations

from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.backends.triton.weight_gradient.offers import PartedTile, algorithm_named, packed_bytes
from convwright.core.candidate import Candidate


class WeightGradientPlan(SequencePlan):
    """Runs one configuration of weight gradients."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        packed = algorithm_named(candidate.algorithm, candidate.problem.dtype).packed
        summed = PartedTile.of(candidate).summed(candidate.problem)
        gradient, out = Operand.WORKSPACE if packed else Operand.SECOND, Operand.SECOND_PART if summed else Operand.OUT
        return [
            *[(Operand.SECOND, Operand.WORKSPACE)] * packed,
            (Operand.FIRST, gradient, out),
            *[(Operand.SECOND_PART, Operand.OUT)] * summed,
        ]

    @staticmethod
    def second_part_from(candidate: Candidate) -> int:
        return packed_bytes(candidate.problem, algorithm_named(candidate.algorithm, candidate.problem.dtype))


def plan_class(candidate: Candidate) -> type[WeightGradientPlan]:
    return WeightGradientPlan
