"""The plan of products on folded rows of taps."""

from __future__ import annotations

from convwright.backends.triton.folded_gemm.offers import Folding, algorithm_of
from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate


class FoldedGemmPlan(SequencePlan):
    """Runs one configuration of products on folded rows of taps.

    The weight is small and packed at each call, by additional programs of the staging kernel. A separate kernel would
    take 1.5 µs when the weight changes, of the 8 µs of a first layer.
    """

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        laid = (Operand.FIRST, Operand.WORKSPACE, Operand.SECOND, Operand.SECOND_PART)
        multiplied = (Operand.WORKSPACE, Operand.SECOND_PART, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)
        return [laid, multiplied]

    @staticmethod
    def second_part_from(candidate: Candidate) -> int:
        return Folding.of(candidate.problem, algorithm_of(candidate)).nbytes


def plan_class(candidate: Candidate) -> type[FoldedGemmPlan]:
    return FoldedGemmPlan
