"""What is being searched, within what budget, and who follows it."""

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
    """Called while a search goes on: ``trying`` stands around a candidate's first run, ``looked`` gets what it took,
    ``progress`` what is being done, how much of it is done and of how much. ``energy`` asks for the energy of the best
    as well. ``later`` says why a candidate that has to be compiled is not to be built now; without it, all are.
    ``around`` names more candidates, near one that was fast, until it may not go on."""

    trying: Trying = lambda candidate: nullcontext()
    progress: Progress = lambda doing, done, of: None
    energy: bool = False
    looked: Callable[[Candidate, float], None] = lambda candidate, look_us: None
    later: Callable[[Candidate], str | None] = lambda candidate: None
    around: Callable[[Candidate, Callable[[], bool]], Iterable[Candidate]] = lambda candidate, goes_on: ()


NO_HOOKS = Hooks()


@dataclass(frozen=True, slots=True)
class SearchInput:
    """One search. ``known`` is what the store knows already, by candidate id; the baseline may be there."""

    problem: Problem
    device: DeviceFacts
    policy: Policy
    baseline: Candidate | None
    known: Mapping[str, Finding]
    mode: Mode
    budget: Budget
    hooks: Hooks = NO_HOOKS

    def bench(self, seed: int = SEED) -> Bench:
        return Bench(self.problem, self.device, self.mode, seed=seed)

    def known_baseline(self) -> Finding | None:
        return None if self.baseline is None else self.known.get(self.baseline.id)


def passed_over(candidate: Candidate, reason: str) -> Finding:
    """The finding of a candidate that is not run: it failed to be compiled, or is not to be tried now."""
    failed = reason.startswith("failed: ")
    return Finding(candidate, failure=reason if failed else None, note=None if failed else reason)
