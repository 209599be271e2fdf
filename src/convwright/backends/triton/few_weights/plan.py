"""The plan of the kernel for few weights."""

from __future__ import annotations

from convwright.backends.triton.few_weights.offers import Patch
from convwright.backends.triton.launching.sequence_plan import NamedOperandsPlan, Operand, SequencePlan
from convwright.core.candidate import Candidate
from convwright.core.fusing import has_extended_epilogue


class FewWeightsPlan(SequencePlan):
    """Runs one configuration of the kernel for few weights."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        parted = Patch.of(candidate).parts > 1
        out = Operand.SECOND_PART if parted else Operand.OUT
        return [(Operand.FIRST, Operand.SECOND, out), *[(Operand.SECOND_PART, Operand.OUT)] * parted]


class FewWeightsNamedPlan(NamedOperandsPlan):
    """Runs a configuration that multiplies dy by an activation's derivative, sums the bias gradient, or both."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        (product, *added), with_bias = FewWeightsPlan.operands(candidate), candidate.problem.epilogue.bias
        return [(*product, Operand.Z, Operand.DB), *((*places, *[Operand.DB] * with_bias) for places in added)]


def plan_class(candidate: Candidate) -> type[FewWeightsPlan] | type[FewWeightsNamedPlan]:
    return FewWeightsNamedPlan if has_extended_epilogue(candidate.problem) else FewWeightsPlan
