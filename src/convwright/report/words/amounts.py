"""Times, their uncertainty, amounts of memory, counts, dates and ages as text."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from convwright.core.finding import Interval


def time_text(time_us: float | None) -> str:
    """A time in microseconds as text, or the words for an unknown one.

    >>> time_text(12.345), time_text(0.0039), time_text(None)
    ('12.35 µs', '0.0039 µs', 'an unknown time')
    """
    return "an unknown time" if time_us is None else f"{figure(time_us)} µs"


def figure(value: float) -> str:
    """A figure with two decimals, or with three digits if it is below 0.1.

    >>> figure(100.0), figure(12.345), figure(0.0), figure(0.0039421)
    ('100.00', '12.35', '0.00', '0.00394')
    """
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.3g}"


def microseconds(value: float) -> str:
    """A time in microseconds for a table's cell.

    >>> microseconds(28611.07), microseconds(12.345), microseconds(0.0039421)
    ('28,611.1', '12.35', '0.00394')
    """
    return f"{value:,.1f}" if abs(value) >= 100 else figure(value)


def readable_time(time_us: float) -> str:
    """A time with three digits, in a fitting unit.

    >>> readable_time(0.0), readable_time(0.0039), readable_time(250.0), readable_time(8192.0), readable_time(2.5e6)
    ('0', '3.9 ns', '250 µs', '8.19 ms', '2.5 s')
    """
    if not time_us:
        return "0"
    scaled = time_us * 1000
    for unit in ("ns", "µs", "ms"):
        if abs(scaled) < 999.5:  # larger ones would be shown as 1e+03
            return f"{scaled:.3g} {unit}"
        scaled /= 1000
    return f"{scaled:.3g} s"


def interval_text(interval: Interval) -> str:
    """The bounds of a time, with three digits.

    >>> interval_text(Interval(12.345, 10.04, 15.02)), interval_text(Interval(1.0, 0.0, float("inf")))
    ('10–15', '0–∞')
    """
    return "–".join("∞" if each == inf else f"{each:,.3g}" for each in (interval.low, interval.high))


def percent_text(interval: Interval) -> str:
    """Half the width of an interval, in percent of its middle.

    >>> percent_text(Interval(10.0, 9.5, 10.5)), percent_text(Interval(10.0, -90.0, 110.0))
    ('5.0', '>100')
    """
    percent = 100 * interval.relative_halfwidth
    return f"{percent:.1f}" if percent <= 100 else ">100"


def bytes_text(nbytes: float | None, *, at_most: bool = False) -> str:
    """An amount of memory with three digits, or a dash if it is unknown; ``at_most`` marks an upper bound.

    >>> bytes_text(0), bytes_text(64), bytes_text(1_500_000), bytes_text(None), bytes_text(64, at_most=True)
    ('0 B', '64 B', '1.5 MB', '–', '≤ 64 B')
    """
    if nbytes is None:
        return "–"
    if at_most:
        return f"≤ {bytes_text(nbytes)}"
    for unit in ("B", "kB", "MB"):
        if nbytes < 999.5:  # larger ones would be shown as 1e+03
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"


def date_text(seconds: float) -> str:
    """A moment in seconds since 1970.

    >>> date_text(1.7e9), date_text(1e30)
    ('2023-11-14 22:13 UTC', '1e+30 s since 1970')
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):  # out of the calendar's range: a damaged store
        return f"{seconds:g} s since 1970"


def iso_text(seconds: float) -> str | None:
    """A moment in seconds since 1970 in ISO 8601; None if it is out of the calendar's range.

    >>> iso_text(1.7e9), iso_text(1e30)
    ('2023-11-14T22:13:20+00:00', None)
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def age_text(seconds: float) -> str:
    """A duration in seconds as text.

    >>> age_text(200_000.0), age_text(600.0), age_text(1.0)
    ('2 days', '10 minutes', 'less than 2 minutes')
    """
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "less than 2 minutes"
