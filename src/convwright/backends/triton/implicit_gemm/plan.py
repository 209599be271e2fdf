"""The implicit GEMM made ready for one problem."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.backends.triton.forward_plan import ForwardPlan
from convwright.backends.triton.implicit_gemm.call import kernel_calls
from convwright.backends.triton.implicit_gemm.offers import Algorithm, algorithm_of
from convwright.backends.triton.implicit_gemm.tiles import Tile
from convwright.backends.triton.sequence_plan import Operand, SequencePlan
from convwright.core.candidate import Candidate


class ImplicitGemmPlan(ForwardPlan):
    """Runs one configuration of the implicit GEMM."""

    kernel_calls = staticmethod(kernel_calls)

    def prepare(self, weight: Tensor) -> Tensor:
        return prepared(weight, algorithm_of(self.candidate))


class PartedGemmPlan(SequencePlan):
    """The same for one that computes its sum in parts."""

    kernel_calls = staticmethod(kernel_calls)

    @staticmethod
    def operands(candidate: Candidate) -> list[tuple[Operand, ...]]:
        product = (Operand.FIRST, Operand.SECOND, Operand.BIAS, Operand.RESIDUAL, Operand.SUMS)
        return [product, (Operand.SUMS, Operand.BIAS, Operand.RESIDUAL, Operand.OUT)]

    @staticmethod
    def sums_from(candidate: Candidate) -> int:
        return 0

    def prepare(self, weight: Tensor) -> Tensor:
        return prepared(weight, algorithm_of(self.candidate))


def plan_class(candidate: Candidate) -> type[ImplicitGemmPlan] | type[PartedGemmPlan]:
    return PartedGemmPlan if Tile.of(candidate).in_parts else ImplicitGemmPlan


def prepared(weight: Tensor, algorithm: Algorithm) -> Tensor:
    """The weight with its channels last in memory: itself where it is so already and need not be packed."""
    if not algorithm.packed:
        return channels_last_of(weight)  # the kernel takes its address, and its memory is in order
    channels_last = weight.movedim(1, -1).contiguous()
    high = _tf32(channels_last)
    return torch.stack((high, channels_last - high)) if algorithm.split else high


def channels_last_of(weight: Tensor) -> Tensor:
    """The weight with its channels last in memory, in whatever order its sizes are told."""
    if weight.dim() == 4:
        return weight.contiguous(memory_format=torch.channels_last)
    if weight.dim() == 5:
        return weight.contiguous(memory_format=torch.channels_last_3d)
    laid = weight.movedim(1, -1)
    return weight if laid.is_contiguous() else laid.contiguous()


def _tf32(weight: Tensor) -> Tensor:
    """The TF32 numbers nearest to ``weight``."""
    rounded = ((weight.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    # Rounding on the bits may carry a NaN over into a zero.
    return torch.where(weight.isnan(), weight, rounded)
