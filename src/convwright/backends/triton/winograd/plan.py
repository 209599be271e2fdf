"""Winograd's convolution made ready for one problem."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.weight import packed
from convwright.backends.triton.sequence_plan import Operand, SequencePlan
from convwright.backends.triton.winograd.algorithms import KERNEL
from convwright.backends.triton.winograd.call import kernel_calls
from convwright.backends.triton.winograd.patches import pitch
from convwright.core.candidate import Candidate


class WinogradPlan(SequencePlan):
    """Runs one configuration of Winograd's convolution."""

    kernel_calls = staticmethod(kernel_calls)

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        products = (
            Operand.WORKSPACE, Operand.SECOND, Operand.FIRST, Operand.BIAS, Operand.RESIDUAL, Operand.OUT,
        )  # fmt: skip
        return [(Operand.FIRST, Operand.WORKSPACE), products]

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight transformed, as 16 K C padded in C, perhaps packed; behind it the weight itself, as 9 C K."""
        problem = self.candidate.problem
        weight = weight.flip(2, 3) if problem.flip else weight
        transformed = pad(_transformed(weight), (0, pitch(problem) - problem.c))
        parts = packed(transformed, split=True) if algorithm_of(self.candidate, KERNEL).packed else transformed
        return torch.cat((parts.flatten(), weight.permute(2, 3, 1, 0).flatten()))


def plan_class(candidate: Candidate) -> type[WinogradPlan]:
    return WinogradPlan


def _transformed(weight: Tensor) -> Tensor:
    """G g G' in float64, rounded once."""
    taps = weight.permute(2, 3, 0, 1).double()
    return _spread(_spread(taps, 0), 1).float().flatten(0, 1)


def _spread(taps: Tensor, dim: int) -> Tensor:
    """G times the three taps along ``dim``; a matrix would have to be copied to the device, which no graph captures."""
    first, second, third = taps.unbind(dim)
    outer = first + third
    return torch.stack((first, (outer + second) / 2, (outer - second) / 2, third), dim)
