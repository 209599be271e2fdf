"""Time each step inside a program, where its weights and code are not in caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from convwright.engine.running.cuda_graph import CudaGraph
from convwright.engine.running.program import Program
from convwright.graph.operations import NOTHING_RUNS

_FEWEST_RUNS, _LONGEST_S = 7, 0.3
# A CUDA graph is timed over this many consecutive replays.
_REPLAYS = 10


def step_times(program: Program, given: Sequence[Tensor]) -> list[float]:
    """Microseconds of each step, median of several runs. They add up to the time of a run."""
    return _on_gpu(program, given) if program.device.type == "cuda" else _on_cpu(program, given)


def _on_cpu(program: Program, given: Sequence[Tensor]) -> list[float]:
    def run() -> list[float]:
        moments = list[float]()
        program.run(program.take(given), at=lambda: moments.append(perf_counter() * 1e6))
        return moments

    return _medians(run)


def _on_gpu(program: Program, given: Sequence[Tensor]) -> list[float]:
    """Times from events between the steps, recorded inside a CUDA graph. The time of an event itself is found by
    comparison with a graph without events, and subtracted."""
    program.take(given)
    marks = [_event(external=True) for _ in range(len(program.assignment.steps) + 1)]
    place = program.arena.place
    assert place is not None
    plain, marked = (CudaGraph(run, place) for run in (program.rerun, lambda: _marked(program, marks)))

    def moments(graph: CudaGraph, events: Sequence[torch.cuda.Event]) -> list[float]:
        graph.replay()
        events[-1].synchronize()
        return [events[0].elapsed_time(event) * 1e3 for event in events]

    def whole() -> list[float]:
        begun, ended = _event(), _event()
        begun.record()
        for _ in range(_REPLAYS):
            plain.replay()
        ended.record()
        ended.synchronize()
        return [0.0, begun.elapsed_time(ended) * 1e3 / _REPLAYS]

    times, (total,) = _medians(lambda: moments(marked, marks)), _medians(whole)
    runs = [not isinstance(step.operation, NOTHING_RUNS) for step in program.assignment.steps]
    spent = sum(time_us for time_us, is_run in zip(times, runs, strict=True) if is_run)
    extra = (spent - total) / max(sum(runs), 1)
    return [max(time_us - extra, 0.0) if is_run else 0.0 for time_us, is_run in zip(times, runs, strict=True)]


def _event(*, external: bool = False) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]


def _marked(program: Program, marks: Sequence[torch.cuda.Event]) -> None:
    following = iter(marks)
    program.rerun(at=lambda: next(following).record())


def _medians(moments: Callable[[], list[float]]) -> list[float]:
    """Differences between consecutive moments, each the median over all runs except the first."""
    runs, until_s = [moments()], perf_counter() + _LONGEST_S
    while len(runs) < _FEWEST_RUNS or perf_counter() < until_s:
        runs.append(moments())
    taken = [[after - before for before, after in pairwise(run)] for run in runs[1:]]
    return [median(times) for times in zip(*taken, strict=True)]
