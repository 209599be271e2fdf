"""The implicit GEMM made ready for one problem."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.backends.triton.forward_plan import ForwardPlan
from convwright.backends.triton.implicit_gemm.call import kernel_calls
from convwright.backends.triton.implicit_gemm.offers import algorithm_of
from convwright.core.candidate import Candidate


class ImplicitGemmPlan(ForwardPlan):
    """Runs one configuration of the implicit GEMM."""

    kernel_calls = staticmethod(kernel_calls)

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight with its channels last in memory: itself where it is so already and need not be packed."""
        algorithm = algorithm_of(self.candidate)
        if not algorithm.packed:
            return channels_last_of(weight)  # the kernel takes its address, and its memory is in order
        channels_last = weight.movedim(1, -1).contiguous()
        high = _tf32(channels_last)
        return torch.stack((high, channels_last - high)) if algorithm.split else high


def plan_class(candidate: Candidate) -> type[ImplicitGemmPlan]:
    return ImplicitGemmPlan


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
