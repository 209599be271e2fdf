"""Reasons why a time may be wrong, each with a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from convwright.core.finding import Interval
from convwright.measuring.regression import median_interval

# With fewer rounds in each half, drift cannot be judged.
_FEWEST_IN_A_HALF = 5


def complaints(
    slopes_us: Sequence[float],
    call_us: Interval,
    precision: float,
    *,
    bend: float,
    slowed_down: str | None,
    background: Sequence[str],
) -> list[str]:
    """All objections to a time and its slopes. ``slowed_down`` is the report of the device's watch."""
    found = [
        _hidden(call_us),
        _too_wide(len(slopes_us), call_us, precision, background),
        _drift(slopes_us, precision),
        _not_linear(bend, precision),
        slowed_down,
    ]
    return [complaint for complaint in found if complaint is not None]


def _hidden(call_us: Interval) -> str | None:
    if call_us.value > 0:
        return None
    return "noise hides the time of a call, whose slope it made negative: give a larger budget"


def _too_wide(rounds: int, call_us: Interval, precision: float, background: Sequence[str]) -> str | None:
    if call_us.value <= 0 or call_us.relative_halfwidth <= precision / 2:
        return None
    cause = f": {', '.join(background)}" if background else ""
    known, asked = _apart(call_us.relative_halfwidth, precision / 2)
    return (
        f"known to ±{known} only, ±{asked} was asked, after {rounds} rounds"
        f"{cause}: give a larger budget, or stop other work on the machine"
    )


def _apart(known: float, asked: float) -> tuple[str, str]:
    """Both in percent, with enough digits to distinguish them.

    >>> _apart(0.026, 0.005), _apart(0.00502, 0.005)
    (('2.6%', '0.5%'), ('0.502%', '0.500%'))
    """
    texts = ((f"{known:.{places}%}", f"{asked:.{places}%}") for places in range(1, 6))
    return next((pair for pair in texts if pair[0] != pair[1]), (f"{known:%}", f"{asked:%}"))


def _drift(slopes_us: Sequence[float], precision: float) -> str | None:
    half = len(slopes_us) // 2
    if half < _FEWEST_IN_A_HALF:
        return None
    early, late = median_interval(slopes_us[:half]), median_interval(slopes_us[half:])
    apart = early.high < late.low or late.high < early.low
    if not apart or early.value <= 0 or abs(late.value / early.value - 1) <= precision:
        return None
    return (
        f"later rounds took {late.value / early.value:.3f} times as long as earlier ones: clocks change or the "
        "device grows warm; lock the clocks, or run longer before measuring"
    )


def _not_linear(bend: float, precision: float) -> str | None:
    if bend <= 2 * precision:
        return None
    return (
        f"time is not linear in the number of calls, off by {bend:.1%}: calls influence each other, "
        "through a cache, a queue or memory that grows"
    )


def bend(sizes: Sequence[int], rounds: Sequence[Sequence[float]]) -> float:
    """The certain distance of the middle sample size from the line through the other two, as a share of its time."""
    if len(sizes) < 3:
        return 0.0
    few, some, many = sizes
    weight = (some - few) / (many - few)
    off = median_interval([(b - a - weight * (c - a)) / b for a, b, c in rounds])
    return max(off.low, -off.high, 0.0)


def overhead_us(sizes: Sequence[int], rounds: Sequence[Sequence[float]], slopes_us: Sequence[float]) -> float | None:
    """The time of a sample beyond its calls, if samples of several lengths exist."""
    if len(sizes) < 2:
        return None
    mean = sum(sizes) / len(sizes)
    return median(sum(times) / len(times) - slope * mean for times, slope in zip(rounds, slopes_us, strict=True))
