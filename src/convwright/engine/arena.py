"""The block of memory in which steps write."""

from __future__ import annotations

import torch

from convwright import torch_api
from convwright.tensors import aligned_bytes


class Arena:
    """One block of ``memory``. Several programs may lie in it if one at a time runs.

    On a GPU their CUDA graphs share a ``pool`` for what PyTorch's operators make.
    """

    def __init__(self, nbytes: int, device: torch.device) -> None:
        with torch.inference_mode(False):  # or else nothing could be written outside of that mode
            self.memory = aligned_bytes(nbytes, device)
        self._device, self._is_on_gpu = device, device.type == "cuda"
        self.pool = torch.cuda.graph_pool_handle() if self._is_on_gpu else None
        self._last_stream = torch.cuda.current_stream(device) if self._is_on_gpu else None

    def join(self) -> None:
        """Make the current stream wait for the one that used the memory last, where that is another. A stream that is
        being captured waits for nothing: before a capture begins, all work has ended."""
        if self._last_stream is None or torch_api.is_capturing():
            return
        stream = torch.cuda.current_stream(self._device)
        if stream != self._last_stream:
            stream.wait_stream(self._last_stream)
            self._last_stream = stream
