"""What a search measures, its budget, and the callbacks of its caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.settings import Mode
from convwright.tuning.budget import Budget
from convwright.tuning.trials.trial import Bench

Progress = Callable[[str, int, int], None]
Trying = Callable[[Candidate], AbstractContextManager[None]]
SEED = 20
SPENT = "was not tried: the budget was spent"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a search. ``trying`` wraps a candidate's first run, ``looked`` receives its time, ``progress``
    receives the activity, the amount done and the total. ``energy`` asks for the energy of the best. ``later`` says why
    a candidate that needs a compiler is not built now; without it, all are. ``around`` gives more candidates close to a
    fast one, until it may not continue."""

    trying: Trying = lambda candidate: nullcontext()
    progress: Progress = lambda doing, done, of: None
    energy: bool = False
    looked: Callable[[Candidate, float], None] = lambda candidate, look_us: None
    later: Callable[[Candidate], str | None] = lambda candidate: None
    around: Callable[[Candidate, Callable[[], bool]], Iterable[Candidate]] = lambda candidate, goes_on: ()


NO_HOOKS = Hooks()


@dataclass(frozen=True, slots=True)
class SearchInput:
    """One search. ``known`` holds the store's findings by candidate id, possibly including the baseline's. With
    ``tolerate_load`` candidates are compared by ratios of rounds where other work disturbs their times."""

    problem: Problem
    device: DeviceFacts
    policy: Policy
    baseline: Candidate | None
    known: Mapping[str, Finding]
    mode: Mode
    budget: Budget
    hooks: Hooks = NO_HOOKS
    tolerate_load: bool = False

    def bench(self, seed: int = SEED) -> Bench:
        return Bench(self.problem, self.device, self.mode, seed=seed)

    def known_baseline(self) -> Finding | None:
        return None if self.baseline is None else self.known.get(self.baseline.id)


def passed_over(candidate: Candidate, reason: str) -> Finding:
    """The finding of a candidate that does not run: it failed to compile, or is not to be tried now."""
    failed = reason.startswith("failed: ")
    return Finding(candidate, failure=reason if failed else None, note=None if failed else reason)
