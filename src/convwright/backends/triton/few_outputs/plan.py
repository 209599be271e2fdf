"""The kernel for few output channels made ready for one problem."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.few_outputs.call import kernel_calls
from convwright.backends.triton.single_plan import SingleKernelPlan
from convwright.core.candidate import Candidate


class FewOutputsPlan(SingleKernelPlan):
    """Runs one configuration of the kernel for few output channels."""

    kernel_calls = staticmethod(kernel_calls)

    def prepare(self, weight: Tensor) -> Tensor:
        return weight  # it is read by its strides


def plan_class(candidate: Candidate) -> type[FewOutputsPlan]:
    return FewOutputsPlan
