"""Intervals of sums and products of predictions.

Errors for candidates of one algorithm mostly have one cause, a wrong model of that algorithm. So errors within a family
count as fully correlated, and their bounds are added. Errors of different families count as independent, and their
distances are added as squares.

An error common to everything, such as a lower clock, is in no step's interval and not in the sum's.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, hypot, inf, log

from convwright.core.finding import Interval


def summed(parts: Iterable[tuple[str, Interval]]) -> Interval:
    """The sum of intervals, each with the family whose errors it shares.

    >>> one = Interval(10.0, 7.0, 14.0)
    >>> summed([("gemm", one), ("gemm", one)])
    Interval(value=20.0, low=14.0, high=28.0)
    >>> summed([("gemm", one), ("pool", Interval(10.0, 6.0, 13.0))])
    Interval(value=20.0, low=15.0, high=25.0)
    """
    families: dict[str, Interval] = {}
    for family, part in parts:
        known = families.get(family, Interval(0.0, 0.0, 0.0))
        families[family] = Interval(known.value + part.value, known.low + part.low, known.high + part.high)
    value = sum(each.value for each in families.values())
    below = hypot(*(each.value - each.low for each in families.values()))
    above = hypot(*(each.high - each.value for each in families.values()))
    return Interval(value, value - below, value + above)


def product(first: Interval, second: Interval) -> Interval:
    """The product of two independent figures above 0: distances of their logarithms are added as squares.

    >>> product(Interval(100.0, 50.0, 200.0), Interval(3.0, 3.0, 3.0))
    Interval(value=300.0, low=150.0, high=600.0)
    >>> product(Interval(2.0, 0.0, inf), Interval(3.0, 2.0, 4.0))
    Interval(value=6.0, low=0.0, high=inf)
    """
    value, both = first.value * second.value, (first, second)
    below = hypot(*(log(each.value / each.low) if each.low > 0 else inf for each in both))
    above = hypot(*(log(each.high / each.value) for each in both))
    return Interval(value, value * exp(-below), value * exp(above))


def energy_of(power_w: Interval, time_us: Interval) -> Interval:
    """In mJ."""
    return product(power_w, time_us).scaled(1e-3)
