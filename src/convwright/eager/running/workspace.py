"""Scratch memory for one call."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from convwright.tensors import strided_allocator


class _Held(threading.local):
    """What this thread has on a CPU, as large as the largest need so far; freed with the thread."""

    on_cpu: Tensor | None = None


_held = _Held()


def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
    """Gives at least ``nbytes`` of scratch memory to each call.

    On a GPU it comes from PyTorch's allocator, which has it back when the call returns: it adds to a model's peak only
    where the peak is in that call. A CPU would have to map the memory again at each call, so there a thread keeps it.
    """
    if device.type == "cuda":
        return strided_allocator((nbytes,), (1,), torch.uint8, device)
    return lambda: _on_cpu(nbytes)


def _on_cpu(nbytes: int) -> Tensor:
    held = _held.on_cpu
    if held is None or held.numel() < nbytes:
        with torch.inference_mode(False):  # a tensor made in inference mode could not be written to outside of it
            held = _held.on_cpu = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
    return held
