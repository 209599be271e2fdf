"""The plan of the kernel for few channels."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.launching.sequence_plan import NamedOperandsPlan, Operand
from convwright.backends.triton.launching.single_plan import SingleKernelPlan
from convwright.core.candidate import Candidate
from convwright.core.fusing import has_extended_epilogue


class DirectPlan(SingleKernelPlan):
    """Runs one configuration of the kernel for few channels."""

    def laid(self, weight: Tensor) -> Tensor:
        return _laid(self.candidate, weight)


class DirectGradientPlan(NamedOperandsPlan):
    """Runs a configuration that multiplies dy by an activation's derivative."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        return [(Operand.FIRST, Operand.SECOND, Operand.OUT, Operand.Z)]

    def laid(self, weight: Tensor) -> Tensor:
        return _laid(self.candidate, weight)


def _laid(candidate: Candidate, weight: Tensor) -> Tensor:
    """The weight itself, which is read by its strides, or a copy with its groups last."""
    if not dict(candidate.config).get("packed"):
        return weight
    return weight.reshape(candidate.problem.groups, -1, *weight.shape[1:]).movedim(0, -1).contiguous()


def plan_class(candidate: Candidate) -> type[DirectPlan] | type[DirectGradientPlan]:
    return DirectGradientPlan if has_extended_epilogue(candidate.problem) else DirectPlan
