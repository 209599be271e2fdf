"""The weight's gradient on staged operands made ready for one problem."""

from __future__ import annotations

from convwright.backends.triton.sequence_plan import Operand, SequencePlan
from convwright.backends.triton.staged_weight_gradient.algorithms import algorithm_of
from convwright.backends.triton.staged_weight_gradient.call import kernel_calls
from convwright.backends.triton.staged_weight_gradient.staging import staged_bytes
from convwright.backends.triton.staged_weight_gradient.tiles import StagedTile
from convwright.core.candidate import Candidate


class StagedWeightGradientPlan(SequencePlan):
    """Runs one configuration of it."""

    kernel_calls = staticmethod(kernel_calls)

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        x, dy = (Operand.FIRST, Operand.WORKSPACE), (Operand.SECOND, Operand.WORKSPACE)
        if StagedTile.of(candidate).parts == 1:
            return [x, dy, x, dy, (Operand.WORKSPACE, Operand.OUT)]
        return [x, dy, x, dy, (Operand.WORKSPACE, Operand.SUMS), (Operand.SUMS, Operand.OUT)]

    @staticmethod
    def sums_from(candidate: Candidate) -> int:
        return staged_bytes(candidate.problem, algorithm_of(candidate))


def plan_class(candidate: Candidate) -> type[StagedWeightGradientPlan]:
    return StagedWeightGradientPlan
