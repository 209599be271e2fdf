"""Extra measurements of the best candidates: peak memory, and energy on request."""

from __future__ import annotations

from dataclasses import replace

from convwright.core.finding import Finding
from convwright.measuring.energy import counter_of, energy_of
from convwright.measuring.memory import peak_extra_bytes
from convwright.tuning.trials.quick_timing import FAILURES
from convwright.tuning.trials.side_by_side import Stopwatch
from convwright.tuning.trials.trial import Trial

# GPU sensors cover a quarter of the time: less than the first says little, more than the second adds nothing.
_SECONDS = (1.0, 5.0)


def with_peak(finding: Finding, trial: Trial) -> Finding:
    """The finding with the peak extra memory of a call."""
    if finding.measurement is None:
        return finding
    try:
        peak = peak_extra_bytes(trial.call(), trial.bench.device)
    except FAILURES:
        return finding  # the time still counts
    return replace(finding, measurement=replace(finding.measurement, peak_bytes=peak))


def with_energy(finding: Finding, trial: Trial, stopwatch: Stopwatch, seconds: float) -> Finding:
    """The finding with the energy of a call, measured over about ``seconds``; unchanged if there is no counter."""
    if finding.measurement is None:
        return finding
    least, most = _SECONDS
    device = trial.bench.device
    within = min(max(seconds, least), most)
    try:
        found = energy_of(trial.call(), stopwatch.device, counter_of(device), seconds=within, idle_s=0.0)
    except FAILURES:
        return finding
    if found is None:
        return finding
    halfwidth = (found.call_mj.high - found.call_mj.low) / 2
    facts = (*finding.measurement.conditions, ("energy counted by", found.source))
    measured = replace(
        finding.measurement, energy_mj=found.call_mj.value, energy_halfwidth_mj=halfwidth, conditions=facts
    )
    return replace(finding, measurement=measured)
