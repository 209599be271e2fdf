"""One workspace per stream, as large as the largest need so far."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_C: Any = torch._C
_thread = threading.local()
_held: dict[tuple[int, int], Tensor] = {}


def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
    """Gives at least ``nbytes`` of scratch memory for the current stream of ``device``, on a CPU for this thread.

    Kernels on one stream run one after the other, so they can share it. While a CUDA graph is being captured the
    memory comes from that graph's own pool: what a graph has seen must live as long as the graph.
    """
    if device.type != "cuda":
        return lambda: _on_cpu(nbytes)
    index = torch.cuda.current_device() if device.index is None else device.index
    stream, capturing = _C._cuda_getCurrentRawStream, _C._cuda_isCurrentStreamCapturing

    def give() -> Tensor:
        if capturing():
            return torch.empty(nbytes, dtype=torch.uint8, device=device)
        return _grown((index, stream(index)), nbytes, device)

    return give


def _on_cpu(nbytes: int) -> Tensor:
    held: Tensor | None = getattr(_thread, "held", None)
    if held is None or held.numel() < nbytes:
        held = _thread.held = _bytes(nbytes, torch.device("cpu"))
    return held


def _grown(owner: tuple[int, int], nbytes: int, device: torch.device) -> Tensor:
    held = _held.get(owner)
    if held is None or held.numel() < nbytes:
        # The smaller one is freed in stream order by PyTorch's allocator, after the kernels that still use it.
        _held.pop(owner, None)
        held = None
        try:
            held = _held[owner] = _bytes(nbytes, device)
        except torch.OutOfMemoryError:
            for other in [other for other in list(_held) if other[0] == owner[0]]:
                _held.pop(other, None)  # what other streams of the device need, they ask for again
            held = _held[owner] = _bytes(nbytes, device)
    return held


def _bytes(nbytes: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a tensor made in inference mode could not be written to outside of it
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
