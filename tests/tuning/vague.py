"""Times that are known badly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding, Interval
from convwright.tuning.trials.side_by_side import Stopwatch
from convwright.tuning.trials.trial import Trial


def vague(finding: Finding) -> Finding:
    """The same, with an interval that reaches far up."""
    assert finding.measurement is not None
    time_us = finding.measurement.device_us.value
    wide = Interval(time_us, 0.9 * time_us, 3 * time_us)
    return replace(finding, measurement=replace(finding.measurement, device_us=wide))


def be_vague(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heats tell little of the candidates that are called "vague"."""
    own = Stopwatch.heat

    def heat(self: Stopwatch, trials: Iterable[Trial], budget_us: float) -> dict[Candidate, Finding]:
        return {c: vague(f) if "vague" in c.id else f for c, f in own(self, trials, budget_us).items()}

    monkeypatch.setattr(Stopwatch, "heat", heat)
