"""A sequence of GPU calls, captured once and replayed with one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_new_stream: Any = torch.cuda.Stream
# The first call compiles, loads and plans; the second finds everything as a replay will.
_WARM_UPS = 2


class CudaGraph:
    """``run`` as a CUDA graph. All memory that it touches must live as long as this.

    Replays run on the current stream. They use the same memory, so that ``join`` comes before anything is written.
    """

    def __init__(self, run: Callable[[], object], device: torch.device) -> None:
        self._device = device
        self._graph = torch.cuda.CUDAGraph()
        self._last_stream: torch.cuda.Stream = _new_stream(device)
        with torch.cuda.device(device):
            self._last_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._last_stream):
                for _ in range(_WARM_UPS):
                    run()
            # On the same stream, since libraries keep handles by stream and make none during a capture. Other threads,
            # such as a data loader's, may go on using CUDA meanwhile.
            with torch.cuda.graph(self._graph, stream=self._last_stream, capture_error_mode="thread_local"):
                run()

    def join(self) -> None:
        """Make the current stream wait for the one of the last replay, where that was another."""
        stream = torch.cuda.current_stream(self._device)
        if stream != self._last_stream:
            stream.wait_stream(self._last_stream)
            self._last_stream = stream

    def replay(self) -> None:
        self._graph.replay()

    @property
    def nbytes(self) -> int:
        """What PyTorch's allocator keeps for the graph."""
        pool = self._graph.pool()
        snapshot: Any = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        return sum(segment["total_size"] for segment in snapshot if tuple(segment["segment_pool_id"]) == tuple(pool))
