"""A sequence of GPU calls, captured once and replayed with one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_new_stream: Any = torch.cuda.Stream
_memory_snapshot: Any = torch.cuda.memory_snapshot
# The first call compiles, loads and plans; the second finds everything as a replay will.
_WARM_UPS = 2


class CudaGraph:
    """``run`` as a CUDA graph. All memory that it touches must live as long as this.

    Replays run on the current stream. Graphs that never run at the same time may share a ``pool`` of memory.
    """

    def __init__(self, run: Callable[[], object], device: torch.device, pool: Any = None) -> None:
        self._graph = torch.cuda.CUDAGraph()
        stream: torch.cuda.Stream = _new_stream(device)
        with torch.cuda.device(device):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    run()
            # On the same stream, since libraries keep handles by stream and make none during a capture. Other threads,
            # such as a data loader's, may go on using CUDA meanwhile.
            with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                run()
            torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> None:
        self._graph.replay()

    @property
    def nbytes(self) -> int:
        """What PyTorch's allocator keeps for the graph."""
        pool = tuple(self._graph.pool())
        held = (each for each in _memory_snapshot() if tuple(each["segment_pool_id"]) == pool)
        return sum(each["total_size"] for each in held)
