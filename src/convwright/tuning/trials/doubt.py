"""Whether a time that a search took is to be relied on; where it is not, why, and the cure."""

from __future__ import annotations

from collections.abc import Sequence

from convwright.core.finding import UNSTABLE, Interval
from convwright.measuring.timing import Timing

# An interval that is wider says nothing any more. That of fewer rounds is wide in any case, however quiet the machine;
# but not where there would have been more.
_WORTHLESS, _FEWEST_ROUNDS = 0.25, 6
# A call among others finds its caches full and its clocks high: it takes no longer than one that was made alone.
_BEYOND_LOOK = 2.0
CURE = "stop other work on the machine, or give a larger budget"


def doubt(timing: Timing, look_us: float) -> str | None:
    """What speaks against a timing of a call that took ``look_us`` when it was looked at, 0 where it was not."""
    took_us, rounds = timing.call_us, len(timing.round_slopes_us)
    if timing.disturbed:
        said = f"{rounds} round{'s were' if rounds > 1 else ' was'} timed, and fewer than two undisturbed"
    elif took_us.value <= 0:
        said = f"its time drowned in noise in {rounds} rounds"
    elif took_us.relative_halfwidth > _WORTHLESS and (rounds >= _FEWEST_ROUNDS or timing.discarded):
        disturbed = f" and {timing.discarded} that were disturbed" * bool(timing.discarded)
        said = f"its time is known to ±{took_us.relative_halfwidth:.0%} only, after {rounds} rounds{disturbed}"
    elif look_us and took_us.value > _BEYOND_LOOK * look_us:
        said = f"{took_us.value:.4g} µs in the median, and {look_us:.4g} µs at a first look"
    else:
        return None
    return unstable(said, timing.background)


def unstable(said: str, causes: Sequence[str]) -> str:
    """A sentence that begins as all do by which what is unstable is known, with its causes and the cure."""
    return f"{UNSTABLE}: {said}{''.join(f', {cause}' for cause in causes)}: {CURE}"


def least(timed_us: Interval, look_us: float) -> Interval:
    """What an unstable timing leaves: other work makes calls longer, so the shortest tells most."""
    value = min((time_us for time_us in (timed_us.value, look_us) if time_us > 0), default=0.0)
    return Interval(value, max(min(timed_us.low, value), 0.0), max(timed_us.high, value))
