"""Heats: trials timed side by side, in one run of the timer, so that their times can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding, Interval, KindError, Measurement
from convwright.core.once import once
from convwright.measuring.call import Call
from convwright.measuring.clock import Clock, CudaGraphClock, HostClock, WallClock
from convwright.measuring.company import Company
from convwright.measuring.conditions import conditions, state, today
from convwright.measuring.regression import median_time
from convwright.measuring.timer import Timing, measure_calls
from convwright.tuning.trials.doubt import doubt, least
from convwright.tuning.trials.looks import FAILURES, Look, failure
from convwright.tuning.trials.trial import Bench, Trial

_DEVICE_SHARE = 0.7
# A call on a CPU that is so long, ten thousand times what reading the clock takes, is timed by itself: a regression
# over few calls would cost precision and gain nothing.
_LONG_US = 1000.0
# To make a call ready takes some time. On a GPU that is to capture graphs, of so many calls for each that makes a
# sample long enough.
_READY_US, _SAMPLE_US, _CAPTURED = 4000.0, 100.0, 10
# So many calls of each are needed at the least to know what the host takes of one.
_HOST_CALLS = 4


class Stopwatch:
    """The clocks of one bench. They are kept, so that graphs which one heat captured serve the next."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        cuda = bench.device.type == "cuda"
        self.device: Clock = CudaGraphClock(bench.device) if cuda else WallClock()
        self.host: Clock | None = HostClock(bench.device) if cuda else None
        self._facts = (*conditions(bench.facts), *today(), ("mode", str(bench.mode)), ("cache", "hot"))

    @once
    def _company(self) -> Company:
        return Company(self.bench.device)

    def heat(self, trials: Iterable[Trial], budget_us: float) -> dict[Candidate, Finding]:
        """Device, host and packing time of each, all interleaved; a trial that fails does not stop the others.

        One whose time drowned in other work on the machine, so that its slope is no time at all, has the time of its
        look, or is left out.
        """
        trials = list(trials)
        try:
            return self._heat(trials, budget_us) if trials else {}
        except FAILURES as error:
            if len(trials) == 1:
                return {trials[0].candidate: failure(trials[0].candidate, error, self.bench.device)}
            alone = [self.heat([trial], budget_us / len(trials)) for trial in trials]
            return {candidate: finding for each in alone for candidate, finding in each.items()}

    def _heat(self, trials: list[Trial], budget_us: float) -> dict[Candidate, Finding]:
        calls: dict[str, Call] = {f"run {trial.candidate.id}": trial.call() for trial in trials}
        packs: dict[str, Call] = {f"pack {t.candidate.id}": call for t in trials if (call := t.preparation())}
        budget_us, host = max(budget_us, 1.0), dict[str, Timing]()
        share = 1.0 if self.host is None else _DEVICE_SHARE
        # With something ahead of it, be it nothing, the timer reads the time of each call by itself.
        alone = {f"run {t.candidate.id}": _nothing for t in trials if self.host is None and t.look_us >= _LONG_US}
        device = measure_calls(calls | packs, clock=self.device, budget_us=budget_us * share, before=alone)
        # What was read before the first heat may be the clock of a GPU that is idle.
        self._facts = tuple((dict(self._facts) | dict(state(self.bench.facts))).items())
        host_budget_us = budget_us * (1 - share)
        if self.host is not None and not _hides_the_host(trials, host_budget_us):
            before = dict.fromkeys(calls | packs, self._company)
            host = measure_calls(calls | packs, clock=self.host, budget_us=host_budget_us, before=before)
        return {
            trial.candidate: Finding(trial.candidate, self._measurement(trial, device, host))
            for trial in trials
            if device[f"run {trial.candidate.id}"].call_us.value > 0 or trial.look_us > 0
        }

    def _measurement(self, trial: Trial, device: Mapping[str, Timing], host: Mapping[str, Timing]) -> Measurement:
        id_ = trial.candidate.id
        timing, look_us = device[f"run {id_}"], trial.look_us
        # A device is not disturbed by other work on the host.
        doubtful = doubt(timing, look_us) if self.bench.device.type == "cpu" else None
        believed = doubtful is None and timing.call_us.value > 0
        return Measurement(
            device_us=timing.call_us if believed else least(timing.call_us, look_us),
            host_us=_interval(host.get(f"run {id_}")),
            prepare_us=_interval(device.get(f"pack {id_}")),
            errors=(),
            workspace_bytes=trial.plan.workspace_bytes,
            samples=timing.samples,
            conditions=self._conditions(),
            doubt=doubtful,
            prepare_host_us=_interval(host.get(f"pack {id_}")),
        )

    def of_look(self, look: Look, doubtful: str | None) -> Finding:
        """What first looks tell of a candidate so slow that more would be a waste, and why that is doubtful."""
        clock = "WallClock" if self.host is None else "events"
        packs, packs_host = (_interval_of(us) if any(look.packing_us) else None for us in look.packing_us)
        measured = Measurement(
            device_us=median_time(look.runs_us),
            host_us=None if self.host is None else _interval_of(look.host_us),
            prepare_us=packs,
            errors=(),
            workspace_bytes=look.trial.plan.workspace_bytes,
            samples=len(look.runs_us),
            conditions=(*self._facts, ("clock", f"{clock}, one call at a time")),
            doubt=doubtful,
            prepare_host_us=packs_host,
        )
        return Finding(look.trial.candidate, measured)

    def _conditions(self) -> tuple[tuple[str, str], ...]:
        facts = (*self._facts, ("clock", type(self.device).__name__))
        if isinstance(self.device, CudaGraphClock) and self.device.fallbacks:
            facts += (("timed by events", "; ".join(self.device.fallbacks)),)
        return facts


def _hides_the_host(trials: Sequence[Trial], budget_us: float) -> bool:
    """Whether the device takes so long for each that what launching it takes is hidden, and not worth waiting for."""
    times_us = [trial.look_us for trial in trials if trial.look_us >= max(_LONG_US, 2 * trial.launch_us)]
    return len(times_us) == len(trials) and _HOST_CALLS * sum(times_us) > budget_us


def heat_us(look: Look, calls: int) -> float:
    """What a heat needs for so many calls of a candidate, and of packing its weight where that is counted."""
    parts = [(look.look_us, look.host_us), *([look.packing_us] if any(look.packing_us) else [])]
    needed_us = 0.0
    for device_us, host_us in parts:
        captured = _CAPTURED * max(_SAMPLE_US / max(device_us, 1.0), 1.0)
        needed_us += calls * max(device_us, host_us) + captured * host_us + _READY_US
    return needed_us


def with_errors(finding: Finding, errors: tuple[KindError, ...], checked: str) -> Finding:
    """The finding with its errors, and in its conditions on what they were looked for."""
    if finding.measurement is None:
        return finding
    facts = tuple(fact for fact in finding.measurement.conditions if fact[0] != "checked")
    measured = replace(finding.measurement, errors=errors, conditions=(*facts, ("checked", checked)))
    return replace(finding, measurement=measured)


def like(finding: Finding, before: Finding) -> Finding:
    """The finding of a later heat with the errors that were found before it."""
    checked = None if before.measurement is None else dict(before.measurement.conditions).get("checked")
    if before.measurement is None or checked is None:
        return finding
    return with_errors(finding, before.measurement.errors, checked)


def _nothing() -> None:
    return None


def _interval_of(time_us: float) -> Interval:
    return Interval(time_us, time_us, time_us)


def _interval(timing: Timing | None) -> Interval | None:
    """The time; 0 where it drowned in noise, for it is added to others."""
    return None if timing is None else timing.call_us.at_least(0.0)
