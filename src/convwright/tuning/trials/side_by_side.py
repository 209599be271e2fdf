"""Time trials side by side, in one run of the timer, so that their times are comparable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding, Interval, KindError, Measurement, PairedRatio
from convwright.measuring.call import Call
from convwright.measuring.clock import Clock, CudaGraphClock, WallClock
from convwright.measuring.conditions import conditions, state, today
from convwright.measuring.regression import median_time, paired_ratio
from convwright.measuring.timer import Timing, measure_calls
from convwright.prediction.corrections import ESTIMATE
from convwright.tuning.choose import is_torch
from convwright.tuning.trials.doubt import doubt, least
from convwright.tuning.trials.quick_timing import FAILURES, QuickTiming, failure
from convwright.tuning.trials.trial import Bench, Trial

# On a CPU a call this long, ten thousand times the cost of reading the clock, is timed alone: a regression over few
# calls would only lose precision.
_LONG_US = 1000.0
# Preparing a call takes time. On a GPU that means capturing graphs of so many calls that a sample is long enough.
_READY_US, _SAMPLE_US, _CAPTURED = 4000.0, 100.0, 10


class Stopwatch:
    """The clocks of one bench, kept so that graphs captured for one comparison serve the next."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        cuda = bench.device.type == "cuda"
        self.device: Clock = CudaGraphClock(bench.device) if cuda else WallClock()
        self.rounds_us: dict[Candidate, tuple[float, ...]] = {}  # of the latest comparison of each
        self._facts = (*conditions(bench.facts), *today(), ("mode", str(bench.mode)), ("cache", "hot"))

    def heat(self, trials: Iterable[Trial], budget_us: float) -> dict[Candidate, Finding]:
        """Device and packing time of each trial, interleaved. A trial that fails does not stop the others.

        A trial whose slope drowned in other work on the machine gets the time of its quick timing, or is left out.
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
        # With any work queued before, even none, the timer reads the time of each call alone.
        on_cpu = self.bench.device.type == "cpu"
        alone = {f"run {t.candidate.id}": _nothing for t in trials if on_cpu and t.look_us >= _LONG_US}
        times = measure_calls(calls | packs, clock=self.device, budget_us=max(budget_us, 1.0), before=alone)
        # A state read before the first comparison may be an idle GPU's clock.
        self._facts = tuple((dict(self._facts) | dict(state(self.bench.facts))).items())
        self.rounds_us |= {t.candidate: times[f"run {t.candidate.id}"].round_slopes_us for t in trials}
        own = next((trial.candidate for trial in trials if is_torch(trial.candidate)), None)
        return {
            trial.candidate: Finding(trial.candidate, self._measurement(trial, times, own))
            for trial in trials
            if times[f"run {trial.candidate.id}"].call_us.value > 0 or trial.look_us > 0
        }

    def _measurement(self, trial: Trial, times: Mapping[str, Timing], own: Candidate | None) -> Measurement:
        id_ = trial.candidate.id
        timing, packing, look_us = times[f"run {id_}"], times.get(f"pack {id_}"), trial.look_us
        # Other work on the host does not disturb a GPU.
        doubtful = doubt(timing, look_us) if self.bench.device.type == "cpu" else None
        believed = doubtful is None and timing.call_us.value > 0
        return Measurement(
            device_us=timing.call_us if believed else least(timing.call_us, look_us),
            # 0 if it drowned in noise, since it is added to other times.
            prepare_us=None if packing is None else packing.call_us.at_least(0.0),
            errors=(),
            workspace_bytes=trial.plan.workspace_bytes,
            samples=timing.samples,
            conditions=(*self._conditions(), *_estimate(trial.candidate)),
            doubt=doubtful,
            paired=None if own is None or own == trial.candidate else _paired(id_, times, own.id),
        )

    def of_look(self, look: QuickTiming, doubtful: str | None) -> Finding:
        """The finding of a candidate with only a quick timing, and why that is doubtful."""
        clock = "WallClock" if self.bench.device.type == "cpu" else "events"
        packing = Interval(look.packing_us, look.packing_us, look.packing_us) if look.packing_us else None
        measured = Measurement(
            device_us=median_time(look.runs_us),
            prepare_us=packing,
            errors=(),
            workspace_bytes=look.trial.plan.workspace_bytes,
            samples=len(look.runs_us),
            conditions=(*self._facts, ("clock", f"{clock}, one call at a time"), *_estimate(look.trial.candidate)),
            doubt=doubtful,
        )
        return Finding(look.trial.candidate, measured)

    def _conditions(self) -> tuple[tuple[str, str], ...]:
        facts = (*self._facts, ("clock", type(self.device).__name__))
        if isinstance(self.device, CudaGraphClock) and self.device.fallbacks:
            facts += (("timed by events", "; ".join(self.device.fallbacks)),)
        return facts


def _paired(id_: str, times: Mapping[str, Timing], own: str) -> PairedRatio | None:
    """The ratio to PyTorch's own call; None if the rounds do not give both ends of its interval."""
    runs, base = times[f"run {id_}"].round_slopes_us, times[f"run {own}"].round_slopes_us
    ratio, packing = paired_ratio(runs, base), None
    if (packed := times.get(f"pack {id_}")) is not None:
        # Noise may make the slope of a short packing negative.
        whole = [run + max(pack, 0.0) for run, pack in zip(runs, packed.round_slopes_us, strict=True)]
        packing = paired_ratio(whole, base)
    if not all(each.low > 0 and isfinite(each.high) for each in (ratio, packing) if each is not None):
        return None
    return PairedRatio(own, ratio, len(runs), packing)


def _estimate(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """The backend's estimate. With the time it corrects the estimates of other candidates."""
    alone = candidate.inner is None and candidate.estimated_us is not None
    return ((ESTIMATE, f"{candidate.estimated_us:.4g}"),) if alone else ()


def heat_us(look: QuickTiming, calls: int, on: str) -> float:
    """The time that so many calls of a candidate take, including the packing of its weight if that counts."""
    if on == "cpu":
        return calls * look.call_us
    needed_us = 0.0
    for device_us in (look.look_us, look.packing_us) if look.packing_us else (look.look_us,):
        captured = _CAPTURED * max(_SAMPLE_US / max(device_us, 1.0), 1.0)
        needed_us += calls * max(device_us, look.host_us) + captured * look.host_us + _READY_US
    return needed_us


def with_errors(finding: Finding, errors: tuple[KindError, ...], checked: str) -> Finding:
    """The finding with its errors, and in its conditions the kinds of data that were checked."""
    if finding.measurement is None:
        return finding
    facts = tuple(fact for fact in finding.measurement.conditions if fact[0] != "checked")
    measured = replace(finding.measurement, errors=errors, conditions=(*facts, ("checked", checked)))
    return replace(finding, measurement=measured)


def like(finding: Finding, before: Finding) -> Finding:
    """The finding of a later comparison, with the errors found before."""
    checked = None if before.measurement is None else dict(before.measurement.conditions).get("checked")
    if before.measurement is None or checked is None:
        return finding
    return with_errors(finding, before.measurement.errors, checked)


def _nothing() -> None:
    return None
