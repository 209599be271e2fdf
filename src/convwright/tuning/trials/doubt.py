"""Whether a time can be trusted; if not, why, with a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from convwright.core.finding import UNSTABLE, Interval
from convwright.measuring.timing import Timing

# A wider interval says nothing. With fewer rounds it is wide on any machine, unless more rounds were possible.
_WORTHLESS, _FEWEST_ROUNDS = 0.25, 6
# A call in a series finds full caches and high clocks: it takes no longer than a single call.
_BEYOND_LOOK = 2.0
CURE = "stop other work on the machine, or give a larger budget"


def doubt(timing: Timing, look_us: float) -> str | None:
    """Why a timing is doubtful, or None. ``look_us`` is the quick timing of a call, 0 if there is none."""
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
    """The standard sentence for an unstable time, by whose beginning others recognise it, with causes and remedy."""
    return f"{UNSTABLE}: {said}{''.join(f', {cause}' for cause in causes)}: {CURE}"


def least(timed_us: Interval, look_us: float) -> Interval:
    """The lower bound from an unstable timing: other work only lengthens calls, so the shortest is the best
    estimate."""
    value = min((time_us for time_us in (timed_us.value, look_us) if time_us > 0), default=0.0)
    return Interval(value, max(min(timed_us.low, value), 0.0), max(timed_us.high, value))
