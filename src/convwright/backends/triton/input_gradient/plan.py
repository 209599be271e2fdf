"""The gradient of an input made ready for one problem."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.gemm.weight import channels_last_of, packed
from convwright.backends.triton.input_gradient.call import kernel_calls
from convwright.backends.triton.input_gradient.offers import KERNEL, is_turned
from convwright.backends.triton.single_plan import SingleKernelPlan
from convwright.core.candidate import Candidate


class InputGradientPlan(SingleKernelPlan):
    """Runs one configuration of an input's gradient."""

    kernel_calls = staticmethod(kernel_calls)

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight with its channels last in memory, itself where it is so already; or each group as C T R S K,
        perhaps packed."""
        problem = self.candidate.problem
        if not is_turned(problem, Tile.of(self.candidate)):
            return channels_last_of(weight)  # the kernel takes its address, and its memory is in order
        algorithm = algorithm_of(self.candidate, KERNEL)
        turned = weight.reshape(problem.groups, -1, *weight.shape[1:]).movedim(1, -1).contiguous()
        return packed(turned, split=algorithm.split) if algorithm.packed else turned


def plan_class(candidate: Candidate) -> type[InputGradientPlan]:
    return InputGradientPlan
