"""The weight as kernels of an implicit GEMM read it."""

from __future__ import annotations

import torch
from torch import Tensor


def channels_last_of(weight: Tensor) -> Tensor:
    """The weight with its channels last in memory, in whatever order its sizes are told."""
    if weight.dim() == 4:
        return weight.contiguous(memory_format=torch.channels_last)
    if weight.dim() == 5:
        return weight.contiguous(memory_format=torch.channels_last_3d)
    laid = weight.movedim(1, -1)
    return weight if laid.is_contiguous() else laid.contiguous()
