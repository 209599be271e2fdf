"""The plan of Winograd's convolution."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.launching.sequence_plan import Operand, SequencePlan
from convwright.backends.triton.winograd.offers import KERNEL, POINTS, pitch
from convwright.core.candidate import Candidate


class WinogradPlan(SequencePlan):
    """Runs one configuration of Winograd's convolution."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        products = (
            Operand.WORKSPACE, Operand.SECOND, Operand.FIRST, Operand.BIAS, Operand.RESIDUAL, Operand.OUT,
        )  # fmt: skip
        return [(Operand.FIRST, Operand.WORKSPACE), products]

    @staticmethod
    def packed_shape(candidate: Candidate) -> tuple[int, ...]:
        """The transformed weight, as 16 K C padded in C, possibly split; after it the weight itself, as 9 C K."""
        problem, parts = candidate.problem, 2 if algorithm_of(candidate, KERNEL).packed else 1
        return (problem.k * (parts * POINTS * pitch(problem) + 9 * problem.c),)


def plan_class(candidate: Candidate) -> type[WinogradPlan]:
    return WinogradPlan
