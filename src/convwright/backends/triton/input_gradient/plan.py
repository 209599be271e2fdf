"""The gradient of an input made ready for one problem."""

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
    """Each group as C T R S K, rounded to TF32; split, both parts of it."""
    algorithm, taps = algorithm_of(candidate, KERNEL), candidate.problem.taps
    if not algorithm.packed:
        return None
    inputs, outputs = group_sizes(candidate.problem)
    rows = (candidate.problem.groups, inputs, *taps, outputs)
    return (2, *rows) if algorithm.split else rows


class InputGradientPlan(SingleKernelPlan):
    """Runs one configuration of an input's gradient."""

    packed_shape = staticmethod(packed_shape)

    def laid(self, weight: Tensor) -> Tensor:
        """The weight with its channels last in memory, itself where it is so already; or each group as C T R S K."""
        problem = self.candidate.problem
        if not is_turned(problem, Tile.of(self.candidate)):
            return channels_last_of(weight)  # the kernel takes its address, and its memory is in order
        return weight.reshape(problem.groups, -1, *weight.shape[1:]).movedim(1, -1).contiguous()


def plan_class(candidate: Candidate) -> type[InputGradientPlan]:
    return InputGradientPlan
