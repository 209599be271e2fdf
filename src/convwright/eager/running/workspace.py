"""Scratch memory for one call."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from convwright.tensors import strided_allocator


class _Held(threading.local):
    """This thread's workspace on a CPU, as large as the largest need so far; freed with the thread."""

    on_cpu: Tensor | None = None


_held = _Held()


def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
    """A function that gives each call at least ``nbytes`` of scratch memory.

    On a GPU it comes from PyTorch's allocator and is returned after the call, so it raises a model's peak only if the
    peak is in that call. On a CPU each thread keeps its memory, since mapping it again at each call is slow.
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
