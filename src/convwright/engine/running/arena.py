"""The memory block that steps write to."""

from __future__ import annotations

from threading import RLock

import torch

from convwright import torch_api
from convwright.engine.running.cuda_graph import GraphPlace
from convwright.errors import Refused
from convwright.forking import forks
from convwright.tensors import aligned_bytes


class Arena:
    """One block of ``memory``. Programs that share it run one at a time.

    On a GPU their CUDA graphs are captured in one ``place``.
    """

    def __init__(self, nbytes: int, device: torch.device) -> None:
        with torch.inference_mode(False):  # an inference tensor could not be written outside of inference mode
            self.memory = aligned_bytes(nbytes, device)
        self._device, self._is_on_gpu = device, device.type == "cuda"
        self.place = GraphPlace(device) if self._is_on_gpu else None
        self._last_stream = torch.cuda.current_stream(device) if self._is_on_gpu else None
        self._turn, self._forks = RLock(), forks()

    @property
    def turn(self) -> RLock:
        """The lock that a thread holds while it uses the memory."""
        if self._forks != forks():
            self._renew()
        return self._turn

    def _renew(self) -> None:
        """Make a new lock in a forked process: a thread of the parent may have held the old one."""
        if self._is_on_gpu:
            raise Refused(
                "a forked process cannot use the GPU memory of an engine: start it with the method 'spawn', and load "
                "the engine there"
            )
        # GNU's OpenMP would wait forever for the parent's threads. PyTorch's data loader does the same.
        torch.set_num_threads(1)
        self._turn, self._forks = RLock(), forks()

    def join(self) -> None:
        """Make the current stream wait for the stream that used the memory last. A stream under capture does not wait:
        all work ends before a capture begins."""
        last = self._last_stream
        if last is None or torch_api.current_stream(last.device_index) == last.cuda_stream or torch_api.is_capturing():
            return
        self._last_stream = torch.cuda.current_stream(self._device)
        self._last_stream.wait_stream(last)
