"""The implicit GEMM made ready for one problem."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.triton.gemm.algorithms import Algorithm, algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.gemm.weight import channels_last_of, packed
from convwright.backends.triton.implicit_gemm.call import kernel_calls
from convwright.backends.triton.implicit_gemm.offers import KERNEL
from convwright.backends.triton.sequence_plan import Operand, RarePlan, SequencePlan
from convwright.backends.triton.single_plan import SingleKernelPlan
from convwright.core.candidate import Candidate


class ImplicitGemmPlan(SingleKernelPlan):
    """Runs one configuration of the implicit GEMM."""

    kernel_calls = staticmethod(kernel_calls)

    def prepare(self, weight: Tensor) -> Tensor:
        return prepared(weight, algorithm_of(self.candidate, KERNEL))


class PartedGemmPlan(SequencePlan):
    """The same for one that computes its sum in parts."""

    kernel_calls = staticmethod(kernel_calls)

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        product = (Operand.FIRST, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.SUMS)
        return [product, (Operand.SUMS, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)]

    def prepare(self, weight: Tensor) -> Tensor:
        return prepared(weight, algorithm_of(self.candidate, KERNEL))


class ScaledGemmPlan(RarePlan):
    """The same for one that scales its sums, whole or in parts."""

    kernel_calls = staticmethod(kernel_calls)

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        if not Tile.of(candidate).in_parts:
            whole = (Operand.FIRST, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)
            return [(*whole, Operand.SCALE)]
        product, added = PartedGemmPlan.operands(candidate)
        return [product, (*added, Operand.SCALE)]

    def prepare(self, weight: Tensor) -> Tensor:
        return prepared(weight, algorithm_of(self.candidate, KERNEL))


def plan_class(candidate: Candidate) -> type[ImplicitGemmPlan] | type[PartedGemmPlan] | type[ScaledGemmPlan]:
    if candidate.problem.epilogue.scale:
        return ScaledGemmPlan
    return PartedGemmPlan if Tile.of(candidate).in_parts else ImplicitGemmPlan


def prepared(weight: Tensor, algorithm: Algorithm) -> Tensor:
    """The weight with its channels last in memory: itself where it is so already and need not be packed."""
    if not algorithm.packed:
        return channels_last_of(weight)  # the kernel takes its address, and its memory is in order
    return packed(weight.movedim(1, -1).contiguous(), split=algorithm.split)
