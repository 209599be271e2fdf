"""Measure one candidate in the measuring process: build, run, check, time. Any result is an observation."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import inf

from convwright.campaign.campaign import MODE, Campaign
from convwright.campaign.drawn import Drawn
from convwright.campaign.listed import Listed
from convwright.core.error_rule import absolute_objection
from convwright.core.finding import Finding, Measurement
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy
from convwright.measuring.checking.data import Kind
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.store.store import Store
from convwright.tuning.budget import Budget
from convwright.tuning.choose import is_torch
from convwright.tuning.trials.extras import with_energy
from convwright.tuning.trials.quick_timing import FAILURES, QuickTiming, QuickTimings, failure
from convwright.tuning.trials.side_by_side import Stopwatch, with_errors
from convwright.tuning.trials.trial import Bench

ENERGY_S = 5.0
# If a candidate takes this many times as long as its problem's best, and rounds would need more than the usual time, it
# is not run again after its first runs: the time is better spent on others.
_SLOW = 5.0
# A longer first run is the only one.
_PATIENCE_US = 1e6
# The budget of a long call is a multiple of its time in which five rounds fit: a round takes up to three times as long
# as the call, and two calls come before the first. Rounds of a still longer call are single calls, so it needs less.
_LONG, _LONGER = 17.5, 7.8
_LONGER_US = 2500.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What to measure, and the least time of its problem so far. ``number`` counts attempts, some of which also measure
    energy."""

    campaign: Campaign
    drawn: Drawn
    listed: Listed
    policy: Policy
    number: int
    best_us: float = inf

    @property
    def wants_energy(self) -> bool:
        every = self.campaign.energy_every
        return every is not None and self.number % every == 0

    def observation(
        self,
        device_key: str,
        outcome: Outcome,
        measurement: Measurement | None = None,
        reason: str | None = None,
        rounds_us: tuple[float, ...] = (),
    ) -> Observation:
        """The observation that this attempt resulted in."""
        return Observation(
            self.listed.candidate, device_key, self.listed.fingerprint, outcome, measurement, reason, rounds_us,
            self.policy, MODE, self.campaign.timing_us, time.time(),
        )  # fmt: skip


class Station:
    """Operands and a reference, shared by the candidates of one problem in the measuring process."""

    def __init__(self, drawn: Drawn, bench: Bench) -> None:
        self.drawn, self.bench = drawn, bench
        self.check = ErrorCheck(
            bench.problem, bench.device, kinds=(Kind.NORMAL,), seed=drawn.number, reference=sampled_reference
        )

    def observe(self, attempt: Attempt, store: Store) -> Observation:
        """Measure one candidate."""
        key = self.bench.facts.key
        with self._trying(attempt, store):
            finding, rounds_us = self._measured(attempt)
        if finding.measurement is None:
            return attempt.observation(key, Outcome.FAILED, reason=finding.failure or finding.note)
        found = replace(finding.measurement, conditions=_conditions(finding.measurement, attempt))
        if finding.failure is not None:
            return attempt.observation(key, Outcome.FAILED, reason=finding.failure)
        return attempt.observation(key, Outcome.MEASURED, found, rounds_us=rounds_us)

    def _trying(self, attempt: Attempt, store: Store) -> AbstractContextManager[None]:
        """Quarantines a candidate that ends this process. PyTorch's own call needs no guard."""
        candidate = attempt.listed.candidate
        if is_torch(candidate):
            return nullcontext()
        problem = attempt.drawn.problem
        return store.trying(problem.key, self.bench.facts.key, candidate.id, attempt.listed.fingerprint)

    def _measured(self, attempt: Attempt) -> tuple[Finding, tuple[float, ...]]:
        candidate, policy = attempt.listed.candidate, attempt.policy
        looks = QuickTimings(self.bench, Budget(inf), policy, lambda _: nullcontext(), patience_us=_PATIENCE_US)
        look = looks.at(candidate)
        if look is None:
            return looks.failed[candidate], ()
        try:
            errors = self.check.errors(look.trial.run)
        except FAILURES as error:
            return failure(candidate, error, self.bench.device), ()
        # Whether an error is too large compared with PyTorch's is decided by a choice under its policy.
        wrong = absolute_objection(candidate.problem, candidate.arithmetic, errors, policy)
        if wrong is not None and not is_torch(candidate):
            return Finding(candidate, failure=f"failed: {wrong}"), ()
        finding, rounds_us = self._timed(attempt, look)
        return with_errors(finding, errors, f"some elements of the output, on {Kind.NORMAL} data"), rounds_us

    def _timed(self, attempt: Attempt, look: QuickTiming) -> tuple[Finding, tuple[float, ...]]:
        stopwatch, candidate = Stopwatch(self.bench), attempt.listed.candidate
        usual_us = attempt.campaign.timing_us
        budget_us = timing_budget_us(look.look_us, usual_us)
        if look.cold or (budget_us > usual_us and look.look_us > _SLOW * attempt.best_us):
            return stopwatch.of_look(look, None), look.runs_us
        budget_us *= 1 if look.trial.preparation() is None else 2
        finding = stopwatch.heat([look.trial], budget_us).get(candidate)
        if finding is None:  # its time drowned in other work
            return stopwatch.of_look(look, None), look.runs_us
        if attempt.wants_energy:
            finding = with_energy(finding, look.trial, stopwatch, ENERGY_S)
        return finding, stopwatch.rounds_us.get(candidate, ())


def timing_budget_us(look_us: float, least_us: float) -> float:
    """The time for at least five rounds of a call that takes ``look_us``.

    >>> timing_budget_us(10.0, 25_000.0), timing_budget_us(100_000.0, 25_000.0)
    (25000.0, 780000.0)
    """
    return max(least_us, (_LONG if look_us < _LONGER_US else _LONGER) * look_us)


def _conditions(measured: Measurement, attempt: Attempt) -> tuple[tuple[str, str], ...]:
    """The conditions of the measurement, and its campaign."""
    drawn = attempt.drawn
    own = {"mode": MODE, "origin": drawn.origin, "campaign": attempt.campaign.name, "problem number": str(drawn.number)}
    if drawn.again:
        own["measured"] = "again"
    return tuple((dict(measured.conditions) | own).items())
