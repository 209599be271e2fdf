"""One workspace for each thread's work on a stream, as large as the largest need so far."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from convwright import torch_api


class _Held(threading.local):
    """What this thread has, which is freed with it: on a CPU, and by device and stream.

    Threads that share a stream share nothing: a plan of several launches may lose the interpreter between two of them.
    """

    def __init__(self) -> None:
        self.on_cpu: Tensor | None = None
        self.on_gpu: dict[tuple[int, int], Tensor] = {}


_held = _Held()


def workspace(nbytes: int, device: torch.device) -> Callable[[], Tensor]:
    """Gives at least ``nbytes`` of scratch memory for this thread, on a GPU for the current stream of ``device``.

    A thread's kernels on one stream run one after the other, so they can share it. While a CUDA graph is being captured
    the memory comes from that graph's own pool: what a graph has seen must live as long as the graph.
    """
    if device.type != "cuda":
        return lambda: _on_cpu(nbytes)
    index = torch.cuda.current_device() if device.index is None else device.index
    stream, capturing = torch_api.current_stream, torch_api.is_capturing

    def give() -> Tensor:
        if capturing():
            return torch.empty(nbytes, dtype=torch.uint8, device=device)
        return _grown((index, stream(index)), nbytes, device)

    return give


def _on_cpu(nbytes: int) -> Tensor:
    held = _held.on_cpu
    if held is None or held.numel() < nbytes:
        held = _held.on_cpu = _bytes(nbytes, torch.device("cpu"))
    return held


def _grown(owner: tuple[int, int], nbytes: int, device: torch.device) -> Tensor:
    by_owner = _held.on_gpu
    held = by_owner.get(owner)
    if held is None or held.numel() < nbytes:
        # The smaller one is freed in stream order by PyTorch's allocator, after the kernels that still use it.
        by_owner.pop(owner, None)
        held = None
        try:
            held = by_owner[owner] = _bytes(nbytes, device)
        except torch.OutOfMemoryError:
            for other in [other for other in by_owner if other[0] == owner[0]]:
                del by_owner[other]  # what other streams of the device need, they ask for again
            held = by_owner[owner] = _bytes(nbytes, device)
    return held


def _bytes(nbytes: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a tensor made in inference mode could not be written to outside of it
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
