"""Products on folded rows of taps made ready for one problem."""

from __future__ import annotations

from convwright.backends.triton.folded_gemm.offers import Folding, algorithm_of
from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate


class FoldedGemmPlan(SequencePlan):
    """Runs one configuration of them.

    The weight is small, and is packed at each call, by programs beside those that stage the input. A kernel of its own
    would take 1.5 µs where the weight changes, of the 8 µs of a first layer.
    """

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        laid = (Operand.FIRST, Operand.WORKSPACE, Operand.SECOND, Operand.BEHIND)
        multiplied = (Operand.WORKSPACE, Operand.BEHIND, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)
        return [laid, multiplied]

    @staticmethod
    def behind_from(candidate: Candidate) -> int:
        return Folding.of(candidate.problem, algorithm_of(candidate)).nbytes


def plan_class(candidate: Candidate) -> type[FoldedGemmPlan]:
    return FoldedGemmPlan
