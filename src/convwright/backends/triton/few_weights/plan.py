"""The kernels of few weights' gradients made ready for one problem."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.few_weights.call import kernel_calls
from convwright.backends.triton.few_weights.tiles import Patch
from convwright.backends.triton.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate


class FewWeightsPlan(SequencePlan):
    """Runs one configuration of the kernel for few weights."""

    kernel_calls = staticmethod(kernel_calls)

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        parted = Patch.of(candidate).parts > 1
        out = Operand.SUMS if parted else Operand.OUT
        return [(Operand.FIRST, Operand.SECOND, out), *[(Operand.SUMS, Operand.OUT)] * parted]

    def prepare(self, weight: Tensor) -> Tensor:
        return weight


def plan_class(candidate: Candidate) -> type[FewWeightsPlan]:
    return FewWeightsPlan
