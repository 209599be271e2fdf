"""Clocks: how long n calls take."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, repeat
from statistics import median
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from convwright import torch_api
from convwright.forking import in_child
from convwright.measuring.call import After as After
from convwright.measuring.call import Call as Call
from convwright.measuring.call import rotating as rotating

# How far ahead of the device the host must be before a sample starts.
_AHEAD_US = 50.0
_MOST_AHEAD_US = 10_000.0
_CYCLES_PER_US = 2000

_cuda: Any = torch.cuda  # its streams and events have no types


class Clock(Protocol):
    """Times n calls as one sample. ``sample_us`` is the least length of a sample for a good reading.

    ``steady_to_us`` is an error per call that may be common to all samples, so that more of them do not reveal it. For
    an ``After``, a clock that ``leaves_out_before`` returns the time of its ``call`` alone; others return both.
    """

    sample_us: float
    steady_to_us: float
    leaves_out_before: bool

    def time_us(self, call: Callable[[], object], n: int) -> float: ...

    def run(self, call: Callable[[], object], n: int) -> None:
        """Make n calls back to back, for other measurements meanwhile, and return when all have ended."""

    def now_us(self) -> float:
        """The time since an arbitrary fixed moment, for budgets."""


class WallClock:
    """Wall time on the host, for calls that have finished when they return."""

    # The counter resolves a thousandth of this. In short samples other work is less frequent.
    sample_us = 20.0
    steady_to_us = 0.0
    # On a CPU emptying a cache takes a thousand times as long as a short call, too long to subtract.
    leaves_out_before = True

    def now_us(self) -> float:
        return perf_counter_ns() / 1000

    def time_us(self, call: Callable[[], object], n: int) -> float:
        with no_garbage_collection():
            return _each_us(call, n) if isinstance(call, After) else _loop_us(call, n)

    def run(self, call: Callable[[], object], n: int) -> None:
        for _ in repeat(None, n):
            call()


class HostClock(WallClock):
    """The host time of n calls: wall time without waiting for the device, which is idle before and after.

    Samples are short, because a host that is far ahead must wait for room in the device's queue.
    """

    def __init__(self, device: torch.device | str = "cuda") -> None:
        self.device = torch.device(device)

    def time_us(self, call: Callable[[], object], n: int) -> float:
        torch.cuda.synchronize(self.device)
        try:
            return super().time_us(call, n)
        finally:
            torch.cuda.synchronize(self.device)


_here = threading.local()


def _measuring_stream(device: torch.device) -> Any:
    """The stream on which a thread measures. There is only one, since cuBLAS keeps 32 MiB for each that it ran on."""
    streams = vars(_here).setdefault("streams", {})
    if device not in streams:
        streams[device] = _cuda.Stream(device)
    return streams[device]


class CudaGraphClock(WallClock):
    """Device time of n calls, replayed as one CUDA graph of n nodes, so that it contains no launch intervals.

    Graphs and the calls in them live as long as the clock, so a clock serves one run. A call that cannot be captured is
    launched n times between events instead; ``fallbacks`` keeps the reasons. ``flush_cache`` overwrites the L2 cache
    before each sample, so that it starts cold.
    """

    sample_us = 100.0  # events resolve about half a microsecond
    # Every round replays the same graphs, and kernels within one graph follow each other faster than in another: for
    # calls of one, two and three kernels of 2.2 µs each, a kernel's share differed by up to 6 ns (H100, H200).
    steady_to_us = 0.005
    leaves_out_before = False

    def __init__(self, device: torch.device | str = "cuda", *, flush_cache: bool = False) -> None:
        index = torch.device(device).index
        self.device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
        self.fallbacks: list[str] = []
        self._stream = _measuring_stream(self.device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._recovered: torch.cuda.CUDAGraph | None = None
        self._eager: dict[int, float] = {}
        self._calls: dict[int, Callable[[], object]] = {}
        self._flush: torch.Tensor | None = None
        if flush_cache:
            cache_bytes = torch.cuda.get_device_properties(self.device).L2_cache_size
            self._flush = torch.empty(2 * cache_bytes, dtype=torch.uint8, device=self.device)

    def time_us(self, call: Callable[[], object], n: int) -> float:
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream), no_garbage_collection():
            if id(call) not in self._calls:
                self._meet(call)
            graph = self._graph(call, n)
            if graph is not None:
                return self._queued_us(graph.replay, _AHEAD_US)
            return self._queued_us(lambda: _loop_us(call, n), _AHEAD_US + n * self._eager[id(call)])

    def run(self, call: Callable[[], object], n: int) -> None:
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            if id(call) not in self._calls:
                self._meet(call)
            graph = self._graph(call, n)
            if graph is not None:
                graph.replay()
            else:
                super().run(call, n)
            self._stream.synchronize()

    def _meet(self, call: Callable[[], object]) -> None:
        """Warm up: loading, compiling and permanent allocations must not happen during a capture."""
        self._stream.wait_stream(torch.cuda.default_stream(self.device))
        self._calls[id(call)] = call  # kept alive, so that its id stays unique
        for _ in repeat(None, 3):
            call()
        self._stream.synchronize()

    def _graph(self, call: Callable[[], object], n: int) -> torch.cuda.CUDAGraph | None:
        key = (id(call), n)
        if key not in self._graphs and id(call) not in self._eager:
            try:
                self._graphs[key] = self._capture(call, n)
            except RuntimeError as error:
                self.fallbacks.append(f"no CUDA graph, launched one by one: {str(error).splitlines()[0]}")
                self._recover()
                self._eager[id(call)] = _loop_us(call, 3) / 3
        return self._graphs.get(key)

    def _capture(self, call: Callable[[], object], n: int) -> torch.cuda.CUDAGraph:
        # Not `torch.cuda.graph`, which collects garbage and empties the allocator's cache at each capture.
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            for _ in repeat(None, n):
                call()
        except BaseException:
            with suppress(RuntimeError):  # it would only report that something failed before
                graph.capture_end()
            raise
        graph.capture_end()
        graph.replay()  # the first replay uploads the graph
        return graph

    def _recover(self) -> None:
        """Clean up after a failed capture. PyTorch before 2.12 considers it still running, so that freeing memory and
        random numbers would fail from then on (pytorch#180395). The pool is closed by hand, the generator by another
        capture, whose graph is kept: a pool without a graph accepts no other."""
        with suppress(RuntimeError):
            torch_api.end_allocating_to_pool(self.device.index, self._pool)
        self._pool = torch.cuda.graph_pool_handle()
        self._stream.synchronize()
        self._recovered = self._capture(torch.zeros(1, device=self.device).zero_, 1)

    def _queued_us(self, work: Callable[[], object], ahead_us: float) -> float:
        if self._flush is not None:
            self._flush.zero_()
        return queued_us(work, ahead_us)


def queued_us(work: Callable[[], object], ahead_us: float) -> float:
    """Device time of the work that ``work`` launches on the current stream. The device spins for ``ahead_us`` while the
    host queues it, so that no launch delay falls between the events."""
    start, end = _cuda.Event(enable_timing=True), _cuda.Event(enable_timing=True)
    torch_api.spin(int(min(ahead_us, _MOST_AHEAD_US) * _CYCLES_PER_US))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000


def _loop_us(call: Callable[[], object], n: int) -> float:
    start_ns = perf_counter_ns()
    for _ in repeat(None, n):
        call()
    return (perf_counter_ns() - start_ns) / 1000


def _each_us(after: After, n: int) -> float:
    """The time of n calls, each read from the clock separately, minus the cost of reading."""
    taken_ns = 0
    for _ in repeat(None, n):
        after.before()
        start_ns = perf_counter_ns()
        after.call()
        taken_ns += perf_counter_ns() - start_ns
    return taken_ns / 1000 - n * _reading_us()


@lru_cache(maxsize=1)
def _reading_us() -> float:
    readings_ns = [perf_counter_ns() for _ in range(1001)]
    return median(second - first for first, second in pairwise(readings_ns)) / 1000


@dataclass
class _Uncollected:
    """The number of active blocks in all threads, and whether garbage collection was on before the first."""

    inside: int = 0
    was_on: bool = False
    changing: threading.Lock = field(default_factory=threading.Lock)


_uncollected = _Uncollected()


def _begin_in_child() -> None:
    """Reset the count: the parent's other threads do not exist in a forked child."""
    global _uncollected
    before, _uncollected = _uncollected, _Uncollected()
    if before.inside and before.was_on:
        gc.enable()


in_child(_begin_in_child)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch off Python's garbage collection inside, which takes 70 ms with many objects."""
    state = _uncollected
    with state.changing:
        if not state.inside:
            state.was_on = gc.isenabled()
            gc.disable()
        state.inside += 1
    try:
        yield
    finally:
        with state.changing:
            state.inside -= 1
            if not state.inside and state.was_on:
                gc.enable()
