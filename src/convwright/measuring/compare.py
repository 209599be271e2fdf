"""Which of two timings from the same run is the shorter, said only where it can be known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any

from convwright.core.finding import Interval
from convwright.core.record import as_record
from convwright.errors import BadInput
from convwright.measuring.regression import median_time, paired_ratio

if TYPE_CHECKING:
    from convwright.measuring.timing import Timing

# Times that differ by no more are equal; a candidate must beat PyTorch's own call by more, or that call is what runs.
TIE = 0.02
TIE_HALFWIDTH = 0.005


class Outcome(StrEnum):
    SAME = "same"
    FAST = "fast"
    SLOW = "slow"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one timing is beside another. ``ratio`` is its time divided by the other's."""

    outcome: Outcome
    ratio: Interval

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = as_record(self)
        return record

    def __str__(self) -> str:
        ratio = self.ratio
        return f"{self.outcome}: takes {ratio.value:.3f} times as long, 95 % {ratio.low:.3f} to {ratio.high:.3f}"


def compare(a: Timing, b: Timing) -> Verdict:
    """What ``a`` is beside ``b``.

    FAST or SLOW: the whole interval of the ratio lies beyond a tie. SAME: the ratio is within 2 % and both times are
    known within 1 % (±0.5 %). AMBIGUOUS: anything else, and measuring longer may settle it. The ratio is taken round by
    round, so drift that touches both cancels.
    """
    from convwright.measuring.timing import Timing

    for given in (a, b):
        if not isinstance(given, Timing):
            raise BadInput(f"what is compared must be a Timing, as `measure_together` gives, got {brief(given)}")
    if a.run != b.run:
        raise BadInput("two timings can be compared if one run of measure_together took both, these are from two runs")
    ratio = paired_ratio(a.round_slopes_us, b.round_slopes_us)
    # What is off in all rounds alike is in a call's own interval, and is none of this.
    halfwidths = [median_time(timing.round_slopes_us).relative_halfwidth for timing in (a, b)]
    return Verdict(_outcome(ratio, max(halfwidths)), ratio)


def beyond_tie(ratio: Interval) -> bool:
    """True where the interval leaves no room for a tie."""
    return ratio.low > 1 + TIE or ratio.high < 1 / (1 + TIE)


def _outcome(ratio: Interval, halfwidth: float) -> Outcome:
    if beyond_tie(ratio):
        return Outcome.SLOW if ratio.value > 1 else Outcome.FAST
    within = 1 / (1 + TIE) <= ratio.value <= 1 + TIE
    return Outcome.SAME if within and halfwidth <= TIE_HALFWIDTH else Outcome.AMBIGUOUS
