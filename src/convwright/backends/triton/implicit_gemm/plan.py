"""The plan of the implicit GEMM."""

from __future__ import annotations

from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import KERNEL
from convwright.backends.triton.launching.sequence_plan import NamedOperandsPlan, Operand, SequencePlan
from convwright.backends.triton.launching.single_plan import SingleKernelPlan
from convwright.backends.triton.packing.weight import channels_last_of
from convwright.core.candidate import Candidate


def packed_shape(candidate: Candidate) -> tuple[int, ...] | None:
    """K T R S C, rounded to TF32; if split, both parts."""
    algorithm, (k, c, *taps) = algorithm_of(candidate, KERNEL), candidate.problem.w.shape
    if not algorithm.packed:
        return None
    return (2, k, *taps, c) if algorithm.split else (k, *taps, c)


class ImplicitGemmPlan(SingleKernelPlan):
    """Runs one configuration of the implicit GEMM."""

    packed_shape = staticmethod(packed_shape)
    laid = staticmethod(channels_last_of)  # the kernel takes the address of dense channels-last memory


class PartedGemmPlan(SequencePlan):
    """The same if the sum is computed in parts."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        product = (Operand.FIRST, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.SECOND_PART)
        return [product, (Operand.SECOND_PART, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)]

    packed_shape = staticmethod(packed_shape)
    laid = staticmethod(channels_last_of)  # the kernel takes the address of dense channels-last memory


class ScaledGemmPlan(NamedOperandsPlan):
    """The same if sums are scaled, whole or in parts."""

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        if not Tile.of(candidate).in_parts:
            whole = (Operand.FIRST, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)
            return [(*whole, Operand.SCALE)]
        product, added = PartedGemmPlan.operands(candidate)
        return [product, (*added, Operand.SCALE)]

    packed_shape = staticmethod(packed_shape)
    laid = staticmethod(channels_last_of)  # the kernel takes the address of dense channels-last memory


def plan_class(candidate: Candidate) -> type[ImplicitGemmPlan] | type[PartedGemmPlan] | type[ScaledGemmPlan]:
    if candidate.problem.epilogue.scale:
        return ScaledGemmPlan
    return PartedGemmPlan if Tile.of(candidate).in_parts else ImplicitGemmPlan
