"""Compare two timings of one run, and say which is shorter only if that is certain."""

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

# Times within this share are equal. A candidate must beat PyTorch's own call by more to replace it.
TIE = 0.02
TIE_HALFWIDTH = 0.005
# A ratio whose bounds are further apart says nothing.
_MOST_APART = 100.0


class Outcome(StrEnum):
    SAME = "same"
    FAST = "fast"
    SLOW = "slow"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One timing compared with another. ``ratio`` is its time divided by the other's, round by round in ``rounds``
    rounds of one run."""

    outcome: Outcome
    ratio: Interval
    rounds: int

    @property
    def is_known(self) -> bool:
        """Whether the rounds suffice for an interval that says something."""
        return self.ratio.low > 0 and self.ratio.high <= _MOST_APART * self.ratio.low

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = as_record(self)
        return record

    def __str__(self) -> str:
        ratio = self.ratio
        between = f"95 % {ratio.low:.3f} to {ratio.high:.3f}, {self.rounds} rounds"
        return f"{self.outcome}: takes {ratio.value:.3f} times as long, {between}"


def compare(a: Timing, b: Timing) -> Verdict:
    """Compare ``a`` with ``b``.

    FAST or SLOW: the whole interval of the ratio is beyond a tie. SAME: the ratio is within 2 % and both times are
    known within 1 % (±0.5 %). AMBIGUOUS: anything else; measuring longer may help. The ratio is computed round by
    round, so drift common to both cancels.
    """
    from convwright.measuring.timing import Timing

    for given in (a, b):
        if not isinstance(given, Timing):
            raise BadInput(f"what is compared must be a Timing, as `measure_together` gives, got {brief(given)}")
    if a.run != b.run:
        raise BadInput(
            "two timings can be compared only if one run of measure_together took both, these are from two runs"
        )
    ratio = paired_ratio(a.round_slopes_us, b.round_slopes_us)
    # An error common to all rounds is in a call's own interval; it does not matter here.
    halfwidths = [median_time(timing.round_slopes_us).relative_halfwidth for timing in (a, b)]
    return Verdict(_outcome(ratio, max(halfwidths)), ratio, len(a.round_slopes_us))


def compare_undisturbed(a: Timing, b: Timing, *, tolerate_load: bool = False) -> Verdict | None:
    """Compare ``a`` with ``b``; None where other work disturbed most rounds of either. With ``tolerate_load`` those
    rounds decide too: a slowdown common to both cancels in the ratio, though neither time is reliable."""
    if not tolerate_load and (a.disturbed or b.disturbed):
        return None
    return compare(a, b)


def beyond_tie(ratio: Interval) -> bool:
    """Whether the interval excludes a tie."""
    return ratio.low > 1 + TIE or ratio.high < 1 / (1 + TIE)


def _outcome(ratio: Interval, halfwidth: float) -> Outcome:
    if beyond_tie(ratio):
        return Outcome.SLOW if ratio.value > 1 else Outcome.FAST
    within = 1 / (1 + TIE) <= ratio.value <= 1 + TIE
    return Outcome.SAME if within and halfwidth <= TIE_HALFWIDTH else Outcome.AMBIGUOUS
