"""Times, their uncertainty, dates and ages in words."""

from __future__ import annotations

from datetime import UTC, datetime

from convwright.core.finding import Interval


def time_text(time_us: float | None) -> str:
    """A time of microseconds, or that it is not known.

    >>> time_text(12.345), time_text(None)
    ('12.35 µs', 'an unknown time')
    """
    return "an unknown time" if time_us is None else f"{time_us:.2f} µs"


def percent_text(interval: Interval) -> str:
    """Half the width of an interval, in percent of its middle.

    >>> percent_text(Interval(10.0, 9.5, 10.5)), percent_text(Interval(10.0, -90.0, 110.0))
    ('5.0', '>100')
    """
    percent = 100 * interval.relative_halfwidth
    return f"{percent:.1f}" if percent <= 100 else ">100"


def date_text(seconds: float) -> str:
    """A moment in seconds since 1970.

    >>> date_text(1.7e9)
    '2023-11-14 22:13 UTC'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def age_text(seconds: float) -> str:
    """A span of seconds.

    >>> age_text(200_000.0), age_text(600.0), age_text(1.0)
    ('2 days', '10 minutes', 'less than 2 minutes')
    """
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "less than 2 minutes"
