"""First looks: a candidate is built and run a few times, for an impression of what it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.errors import ConvwrightError, first_line
from convwright.tuning.budget import Budget
from convwright.tuning.trial import Bench, Call, Trial

# What a candidate may raise that is the candidate's own affair. A fault of the device is not: it is raised again.
FAILURES = (ConvwrightError, RuntimeError, NotImplementedError, ValueError, OSError, MemoryError)

# After the first run, which loads and allocates, so many more, as long as they are short.
_RUNS = 3
_SHORT_US = 1000.0


@dataclass(frozen=True, slots=True)
class Look:
    """``runs_us`` are what runs after the first took; of a candidate that is very slow, what the first did."""

    trial: Trial
    runs_us: tuple[float, ...]

    @property
    def look_us(self) -> float:
        return min(self.runs_us)


class Looks:
    """What was seen of each candidate so far. A run that takes longer than ``patience_us`` is not repeated."""

    def __init__(
        self,
        bench: Bench,
        budget: Budget,
        trying: Callable[[Candidate], AbstractContextManager[None]],
        *,
        patience_us: float = float("inf"),
    ) -> None:
        self.bench, self.budget = bench, budget
        self.looked: dict[Candidate, Look] = {}
        self.failed: dict[Candidate, Finding] = {}
        self._trying, self._patience_us = trying, patience_us

    @property
    def best_us(self) -> float:
        return min((look.look_us for look in self.looked.values()), default=0.0)

    def at(self, candidate: Candidate) -> Look | None:
        """Build it and run it; None, and a finding with the reason, where that fails."""
        try:
            with self._trying(candidate):
                trial = Trial(candidate, self.bench)
                call = trial.call()
                runs = [self._run_us(call)]
                if runs[0] <= self._patience_us:
                    runs = [self._run_us(call)]
                while len(runs) < _RUNS and sum(runs) < _SHORT_US:
                    runs.append(self._run_us(call))
        except FAILURES as error:
            self.failed[candidate] = failure(candidate, error, self.bench.device)
            return None
        self.looked[candidate] = look = Look(trial, tuple(runs))
        trial.look_us = look.look_us
        return look

    def again(self, candidate: Candidate, times: int) -> Look:
        """Some more runs."""
        look = self.looked[candidate]
        runs = (*look.runs_us, *(self._run_us(look.trial.call()) for _ in range(times)))
        self.looked[candidate] = Look(look.trial, runs)
        return self.looked[candidate]

    def _run_us(self, call: Call) -> float:
        begun_us = self.budget.now_us()
        call()
        if self.bench.device.type == "cuda":
            torch.cuda.synchronize(self.bench.device)
        return self.budget.now_us() - begun_us

    def passed_over(self, candidate: Candidate) -> Finding:
        """A candidate that was looked at and not timed."""
        times = self.looked[candidate].look_us / max(self.best_us, 1e-3)
        return Finding(candidate, note=f"about {times:.1f}x the best at a first look")


def failure(candidate: Candidate, error: BaseException, device: torch.device) -> Finding:
    """What a candidate raised, as its finding."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # raises again where the device itself is at fault
    return Finding(candidate, failure=f"failed: {first_line(error)}")
