"""The kernel for few output channels made ready for one problem."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.few_outputs_call import kernel_call
from convwright.backends.triton.forward_plan import ForwardPlan


class FewOutputsPlan(ForwardPlan):
    """Runs one configuration of the kernel for few output channels."""

    kernel_call = staticmethod(kernel_call)

    def prepare(self, weight: Tensor) -> Tensor:
        return weight  # it is read by its strides
