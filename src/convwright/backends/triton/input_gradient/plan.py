"""The gradient of an input made ready for one problem."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.gemm.algorithms import algorithm_named
from convwright.backends.triton.gemm.weight import packed
from convwright.backends.triton.input_gradient.call import kernel_calls
from convwright.backends.triton.input_gradient.offers import algorithms
from convwright.backends.triton.single_plan import SingleKernelPlan
from convwright.core.candidate import Candidate


class InputGradientPlan(SingleKernelPlan):
    """Runs one configuration of an input's gradient."""

    kernel_calls = staticmethod(kernel_calls)

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight as C R S K in memory, and packed where that is asked for."""
        candidate = self.candidate
        algorithm = algorithm_named(candidate.algorithm, algorithms(candidate.problem.dtype))
        turned = weight.movedim(0, -1).contiguous()
        return packed(turned, split=algorithm.split) if algorithm.packed else turned


def plan_class(candidate: Candidate) -> type[InputGradientPlan]:
    return InputGradientPlan
