"""A call before and after a change, timed in one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.measuring.compare import Outcome, compare
from convwright.measuring.timing import Timing


@dataclass(frozen=True, slots=True)
class Paired(Record):
    """Two times of one run. ``ratio`` is the time after the change divided by the time before it, from ``rounds`` in
    which both ran. ``after_us`` is the time before it times this ratio. ``outcome`` says whether the change is surely
    faster or slower. ``unstable`` says why the times may be wrong."""

    before_us: Interval
    after_us: Interval
    ratio: Interval
    outcome: Outcome
    rounds: int
    unstable: str | None = None

    @classmethod
    def of(cls, timings: Mapping[str, Timing], before: str, after: str) -> Paired | str:
        """Two timings of one run by their names, or why they say nothing."""
        pair = timings[before], timings[after]
        verdict = compare(pair[1], pair[0])
        if not (verdict.is_known and all(each.call_us.value > 0 for each in pair)):
            return next((each.unstable for each in pair if each.unstable), "too few runs fit into the time")
        unstable = next((each.unstable for each in pair if each.disturbed), None)
        before_us, ratio = pair[0].call_us, verdict.ratio
        return cls(before_us, before_us.times(ratio), ratio, verdict.outcome, verdict.rounds, unstable)
