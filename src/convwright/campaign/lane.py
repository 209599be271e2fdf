"""One device at work: claim problems, measure their candidates one by one, and store the observations.

For a GPU another process lists and compiles the candidates of the next problems meanwhile (``ahead``). On a CPU that
would disturb the measurement, so each problem is listed at its turn.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from convwright.campaign.ahead import Ahead, Planned, plan_of
from convwright.campaign.attempt import Attempt
from convwright.campaign.beats import beating
from convwright.campaign.child import Start
from convwright.campaign.listed import Listed, is_hopeless
from convwright.campaign.process import Process
from convwright.campaign.series import Series, Turns, lane_number
from convwright.campaign.site import Site
from convwright.campaign.tally import Tally
from convwright.core.observation import Observation, Outcome
from convwright.errors import StoreError
from convwright.store.claims import device_lock
from convwright.store.store import Store
from convwright.store_url import StoreUrl
from convwright.tuning.workers import Abandoned, TaskFailed, WorkerDied, WorkerHung

# After this many processes in a row died of one problem, its other candidates are skipped.
_MOST_DEATHS = 3
# The additional time for a measurement of energy.
_ENERGY_S = 30.0
_DONE, _FAILED = "done", "failed"


@dataclass(frozen=True, slots=True)
class Job:
    """Settings shared by all lanes of a campaign. ``place`` is where other processes find the store. ``ends`` is set
    when no new candidate should start, ``is_over`` when nobody waits for the current one."""

    series: Series
    store: Store
    place: Path | StoreUrl | None
    tally: Tally
    ends: Callable[[], bool]
    is_over: Callable[[], bool]


def work(job: Job, site: Site) -> None:
    """Measure on one device until it is time to end. An error if another process measures on it."""
    with device_lock(job.store, site.identity):
        work_on(job, site)


def work_on(job: Job, site: Site) -> None:
    """The same on a device that is locked already."""
    worker = f"{platform.node()} {os.getpid()} {lane_number()}"
    with ExitStack() as opened:
        opened.callback(_release, job, worker)
        opened.enter_context(beating(job.series.claims, worker))
        opened.enter_context(suppress(Abandoned))  # the time ended during a wait
        lane = Lane(job, site, worker)
        opened.callback(lane.end)
        lane.run()


def _release(job: Job, worker: str) -> None:
    """Return claims that were prepared but not measured."""
    with suppress(StoreError):  # a full store has reported that already
        job.series.claims.release(worker)


class Lane:
    """The processes that serve one device."""

    def __init__(self, job: Job, site: Site, worker: str) -> None:
        self._job, self._site, self._worker = job, site, worker
        self._device = job.series.device
        start = Start(site.device, job.place, site.threads, site.cores)
        self._process = Process(start, site.environment, job.ends, job.is_over)
        self._turns = Turns(job.series, worker, most=1 if site.facts.kind == "cpu" else 4)
        self._ahead: Ahead | None = None
        if site.facts.kind == "cuda":
            self._ahead = Ahead(
                job.series.campaign,
                self._turns,
                lambda ends: Process(replace(start, measures=False), site.environment, ends, ends),
                job.ends,
            )

    def run(self) -> None:
        """Measure one problem after the other."""
        self._process.started()
        while not self._job.ends():
            planned = self._next()
            if planned is None:
                return
            state, observations = self._measured(planned)
            if not observations and self._job.ends():
                return  # nothing of it was tried, so it is returned
            if self._job.series.claims.finish(planned.drawn.name, self._worker, state, observations):
                self._job.tally.add(observations)

    def end(self) -> None:
        """End the processes."""
        if self._ahead is not None:
            self._ahead.end()
        self._process.end()

    def _next(self) -> Planned | None:
        if self._ahead is not None:
            return self._ahead.next()
        return plan_of(self._job.series.campaign, self._turns.next(), self._process)

    def _measured(self, planned: Planned) -> tuple[str, list[Observation]]:
        """The observations of a problem, and the final state of its task."""
        if planned.failed is not None:
            return _FAILED, []
        seen, deaths = _Seen(), 0
        for listed in self._worth_trying(planned):
            if self._job.ends() or deaths == _MOST_DEATHS:
                break
            if seen.makes_hopeless(listed, self._site):
                continue
            try:
                observation = self._observed(planned, listed, seen)
            except TaskFailed:  # independent of the candidate, for example no memory for operands
                return _FAILED, seen.observations
            deaths = deaths + 1 if observation.outcome in (Outcome.CRASHED, Outcome.HUNG) else 0
            seen.add(observation)
        return _DONE, seen.observations

    def _worth_trying(self, planned: Planned) -> list[Listed]:
        """The candidates that did not end a process before."""
        bad = self._job.store.quarantined(planned.drawn.problem.key, self._device.key)
        return [
            each
            for each in planned.listed
            if each.candidate.id not in bad or bad[each.candidate.id].fingerprint != each.fingerprint
        ]

    def _observed(self, planned: Planned, listed: Listed, seen: _Seen) -> Observation:
        campaign, key = self._job.series.campaign, self._device.key
        attempt = Attempt(campaign, planned.drawn, listed, planned.policy, self._job.tally.next_attempt(), seen.best_us)
        if listed.broken is not None:
            return attempt.observation(key, Outcome.FAILED, reason=listed.broken)
        patience_s = campaign.deadline_s + _ENERGY_S * attempt.wants_energy
        try:
            observation: Observation = self._process.ask("attempt", attempt, patience_s=patience_s)
        except WorkerHung as hung:
            return attempt.observation(key, Outcome.HUNG, reason=f"its process {hung}")
        except WorkerDied as died:
            return attempt.observation(key, Outcome.CRASHED, reason=f"its process {died}")
        except TaskFailed as failed:
            if self._process.is_alive:
                raise
            return attempt.observation(key, Outcome.CRASHED, reason=f"its process failed: {failed}")
        return observation


class _Seen:
    """The state of one problem."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.best_us = inf

    def add(self, observation: Observation) -> None:
        self.observations.append(observation)
        measured = observation.measurement
        if measured is not None and measured.device_us.value > 0:
            self.best_us = min(self.best_us, measured.device_us.value)

    def makes_hopeless(self, listed: Listed, site: Site) -> bool:
        """Whether physics shows a candidate to be far slower than the best, and others of its algorithm are
        measured."""
        return not listed.first and is_hopeless(listed.candidate, site.facts, self.best_us)
