"""The plan of input gradients."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.input_gradient.offers import KERNEL, is_turned
from convwright.backends.triton.launching.single_plan import SingleKernelPlan
from convwright.backends.triton.operands import group_sizes
from convwright.backends.triton.packing.weight import channels_last_of
from convwright.core.candidate import Candidate


def packed_shape(candidate: Candidate) -> tuple[int, ...] | None:
    """Each group as C T R S K, rounded to TF32; if split, both parts."""
    algorithm, taps = algorithm_of(candidate, KERNEL), candidate.problem.taps
    if not algorithm.packed:
        return None
    inputs, outputs = group_sizes(candidate.problem)
    rows = (candidate.problem.groups, inputs, *taps, outputs)
    return (2, *rows) if algorithm.split else rows


class InputGradientPlan(SingleKernelPlan):
    """Runs one configuration of input gradients."""

    packed_shape = staticmethod(packed_shape)

    def laid(self, weight: Tensor) -> Tensor:
        """The weight in channels-last memory, the same tensor if it already is; or each group as C T R S K."""
        problem = self.candidate.problem
        if not is_turned(problem, Tile.of(self.candidate)):
            return channels_last_of(weight)  # the kernel takes the address of dense channels-last memory
        return weight.reshape(problem.groups, -1, *weight.shape[1:]).movedim(1, -1).contiguous()


def plan_class(candidate: Candidate) -> type[InputGradientPlan]:
    return InputGradientPlan
