"""A sequence of GPU calls, captured once and replayed with one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import finalize

import torch

from convwright import torch_api
from convwright.errors import BackendError

_external_stream: Any = torch.cuda.ExternalStream
_memory_snapshot: Any = torch.cuda.memory_snapshot
_NON_BLOCKING = 1


class GraphPlace:
    """A place to capture CUDA graphs that never run at the same time: a stream for nothing else, and a memory pool that
    outlives the last of the graphs.

    cuBLAS has a workspace for each stream, and a graph keeps using that of its capture stream. But PyTorch can free it
    at any time: `torch.compile` frees all of them, and the end of a graph frees that of its stream. Here it lies in the
    pool, which nobody else gets memory from. PyTorch 2.11 keeps its 32 MiB after the place is gone.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self.pool: Any = torch.cuda.graph_pool_handle()
        self.stream = _own_stream(self.device)
        torch_api.allocate_to_pool(self.device.index, self.pool)
        torch_api.end_allocating_to_pool(self.device.index, self.pool)
        # At the end of the process the driver may be gone.
        finalize(self, torch_api.release_pool, self.device.index, self.pool).atexit = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Use the stream, and allocate from the pool."""
        torch.cuda.empty_cache()  # inside the pool PyTorch does not do this when memory runs out
        torch_api.allocate_to_pool(self.device.index, self.pool)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            torch_api.end_allocating_to_pool(self.device.index, self.pool)
            torch_api.release_pool(self.device.index, self.pool)

    @property
    def nbytes(self) -> int:
        """Bytes that PyTorch's allocator keeps in the pool."""
        held = (each for each in _memory_snapshot() if tuple(each["segment_pool_id"]) == tuple(self.pool))
        return sum(each["total_size"] for each in held)


class CudaGraph:
    """``run`` as a CUDA graph. All memory that it uses must outlive this object. Replays run on the current stream."""

    def __init__(self, run: Callable[[], object], place: GraphPlace) -> None:
        self._place, self._graph = place, torch.cuda.CUDAGraph()
        with torch.cuda.device(place.device):
            run()  # compiles, and allocates what steps keep, which other graphs of the place must not overwrite
            place.stream.wait_stream(torch.cuda.current_stream())
            with place.entered():
                run()  # lets libraries allocate per-stream state, which they cannot do during a capture
            self._capture(run)
            torch.cuda.current_stream().wait_stream(place.stream)

    def _capture(self, run: Callable[[], object]) -> None:
        # Other threads, such as a data loader's, may keep using CUDA meanwhile.
        place, mode = self._place, "thread_local"
        try:
            with (
                torch.cuda.stream(place.stream),  # a failed capture does not leave its stream by itself
                torch.cuda.graph(self._graph, pool=place.pool, stream=place.stream, capture_error_mode=mode),
            ):
                run()
        except BaseException:
            with suppress(RuntimeError):  # after a failed capture, stop allocating from the pool
                torch_api.end_allocating_to_pool(place.device.index, place.pool)
            raise

    def replay(self) -> None:
        self._graph.replay()


def _own_stream(device: torch.device) -> Any:
    """A new stream. PyTorch's own 32 are shared in turn."""
    stream = ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # make sure that the device's context exists and is current
        status = ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING)
    if status:
        raise BackendError(f"cuStreamCreate of the CUDA driver failed with status {status}")
    return _external_stream(stream.value, device)
