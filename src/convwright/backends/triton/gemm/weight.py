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


def packed(weight: Tensor, *, split: bool) -> Tensor:
    """An fp32 weight rounded to TF32, with ``split`` the rest of it behind."""
    high = _tf32(weight)
    return torch.stack((high, weight - high)) if split else high


def _tf32(weight: Tensor) -> Tensor:
    """The TF32 numbers nearest to ``weight``."""
    rounded = ((weight.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    # Rounding on the bits may carry a NaN over into a zero.
    return torch.where(weight.isnan(), weight, rounded)
