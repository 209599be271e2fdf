"""Products on folded rows of taps made ready for one problem."""

from __future__ import annotations

import torch

from convwright.backends.triton.folded_gemm.algorithms import algorithm_of
from convwright.backends.triton.folded_gemm.call import kernel_calls
from convwright.backends.triton.folded_gemm.folding import Folding
from convwright.backends.triton.folded_gemm.tiles import steps
from convwright.backends.triton.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate


class FoldedGemmPlan(SequencePlan):
    """Runs one configuration of them."""

    kernel_calls = staticmethod(kernel_calls)
    packed_dtype = torch.uint8

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        multiplied = (Operand.WORKSPACE, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)
        return [(Operand.FIRST, Operand.WORKSPACE), multiplied]

    @staticmethod
    def packed_shape(candidate: Candidate) -> tuple[int, ...]:
        """Bytes of K T R and a step each, and a scale for each K."""
        problem = candidate.problem
        return (Folding.of(problem, algorithm_of(candidate)).packed_bytes(steps(problem), problem.k),)


def plan_class(candidate: Candidate) -> type[FoldedGemmPlan]:
    return FoldedGemmPlan
