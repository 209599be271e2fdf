"""The samples of a timing. Candidates of one problem are timed again by a clock that records its readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from convwright.core.candidate import Candidate
from convwright.measuring.call import Call
from convwright.measuring.clock import CudaGraphClock, WallClock
from convwright.measuring.timer import measure_calls
from convwright.measuring.timing import Timing
from convwright.report.plot import Fit
from convwright.settings import Mode
from convwright.tuning.find import Findings
from convwright.tuning.trials.trial import Bench, Trial

# Enough calls for ten rounds with samples of three lengths, within a time that a user can wait.
_CALLS = 100
_LEAST_US, _MOST_US = 300_000.0, 30_000_000.0
_SEED = 41


class _Recording:
    """Records the readings of a clock by call, as (calls, microseconds). It must come before the clock among the
    bases."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.read: dict[int, list[tuple[int, float]]] = {}

    def time_us(self, call: Callable[[], object], n: int) -> float:
        time_us: float = super().time_us(call, n)  # type: ignore[misc]
        self.read.setdefault(id(call), []).append((n, time_us))
        return time_us


# Subclasses, since the timer uses methods of a GPU's clock that the protocol does not have.
class _WallClock(_Recording, WallClock):
    pass


class _CudaGraphClock(_Recording, CudaGraphClock):
    pass


def fits_of(calls: Mapping[str, Callable[[], object]], device: torch.device, *, budget_us: float) -> tuple[Fit, ...]:
    """Time ``calls`` side by side. For each: the samples of all rounds, and the line through them.

    >>> (fit,) = fits_of({"sum": lambda: sum(range(1000))}, torch.device("cpu"), budget_us=20_000)
    >>> len({n for n, _ in fit.samples}), fit.call_us.value > 0
    (3, True)
    """
    clock = _CudaGraphClock(device) if device.type == "cuda" else _WallClock()
    timings = measure_calls(dict[str, Call](calls), clock=clock, budget_us=budget_us)
    return tuple(_fit(name, timings[name], clock.read[id(call)]) for name, call in calls.items())


def fits(found: Findings) -> tuple[Fit, ...]:
    """Time PyTorch's own call and the choice of a search on this machine, with new inputs."""
    bench = Bench(found.problem, found.device, Mode.QUICK, seed=_SEED)
    candidates = _worth_showing(found)
    trials = {candidate.id: Trial(candidate, bench).call() for candidate in candidates}
    return fits_of(trials, bench.device, budget_us=_budget_us(found, candidates))


def _worth_showing(found: Findings) -> Sequence[Candidate]:
    shown = [each.candidate for each in (found.baseline, found.choice) if each is not None]
    return list(dict.fromkeys(shown))


def _budget_us(found: Findings, candidates: Sequence[Candidate]) -> float:
    known = [v.finding for v in found.verdicts if v.finding.candidate in candidates and v.finding.measurement]
    device_us = sum(each.measurement.device_us.value for each in known if each.measurement is not None)
    return min(max(_CALLS * device_us, _LEAST_US), _MOST_US)


def _fit(name: str, timing: Timing, read: Sequence[tuple[int, float]]) -> Fit:
    """The samples are the last readings, one for each length and round. Earlier readings are trial calls."""
    rounds = len(timing.round_slopes_us)
    lengths = timing.samples // rounds
    return Fit(name, tuple(read[-(rounds + timing.discarded) * lengths :]), timing.call_us, timing.overhead_us)
