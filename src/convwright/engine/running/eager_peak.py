"""The peak GPU memory of a run of the model itself, as PyTorch's allocator counts it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def eager_peaks(model: nn.Module, inputs: Sequence[Any], device: torch.device) -> dict[str, int]:
    """The peak by layout, without weights and inputs: "nchw", the model as it is, and, if it has images, "nhwc", a
    copy with channels last."""
    given, structure = torch_api.flatten(inputs)
    peaks = {"nchw": _peak(model, inputs, device)}
    ranks = {each.dim() for each in given if isinstance(each, Tensor)}
    if last := next((_LAST[rank] for rank in (5, 4) if rank in ranks), None):
        copied: Any = deepcopy(model)
        laid = [each.contiguous(memory_format=last) if _LAST.get(each.dim()) is last else each for each in given]
        peaks["nhwc"] = _peak(copied.to(memory_format=last), torch_api.unflatten(laid, structure), device)
    return peaks


@torch.no_grad()
def _peak(model: nn.Module, inputs: Sequence[Any], device: torch.device) -> int:
    model(*inputs)  # libraries allocate at first calls
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    model(*inputs)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
