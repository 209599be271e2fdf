"""Regression of time on the number of calls: the time of one call, without the cost of timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, inf, isfinite, isnan, log, nan, sqrt
from statistics import fmean, median, stdev

from convwright.core.finding import Interval

_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Line:
    """time = intercept + slope · n. The intercept is all overhead that does not grow with n."""

    intercept: float
    slope: Interval


def fit_line(n: Sequence[float], times: Sequence[float]) -> Line:
    """Least squares with a free intercept. A line through the origin would add the overhead to the slope.

    >>> fit_line([1, 2, 3], [12.0, 14.0, 16.0])
    Line(intercept=10.0, slope=Interval(value=2.0, low=2.0, high=2.0))
    """
    mean_n, mean_time = fmean(n), fmean(times)
    spread = sum((value - mean_n) ** 2 for value in n)
    slope = sum((value - mean_n) * (time - mean_time) for value, time in zip(n, times, strict=True)) / spread
    intercept = mean_time - slope * mean_n
    if len(n) < 3:
        return Line(intercept, Interval(slope, -inf, inf))
    residual = sum((time - intercept - slope * value) ** 2 for value, time in zip(n, times, strict=True))
    half = student_t(len(n) - 2) * sqrt(residual / (len(n) - 2) / spread)
    return Line(intercept, Interval(slope, slope - half, slope + half))


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: exact for 1 and 2 degrees of freedom, within 0.2 % above.

    >>> [round(student_t(freedom), 2) for freedom in (1, 2, 5, 30)]
    [12.71, 4.3, 2.57, 2.04]
    """
    if freedom < 1:
        return inf
    if freedom <= 2:
        return (12.706204736, 4.302652730)[freedom - 1]
    # Cornish-Fisher: the normal quantile and four corrections in 1 / freedom (Abramowitz and Stegun 26.7.5).
    z = _Z
    corrections = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(corrections, start=1))


def median_interval(values: Sequence[float]) -> Interval:
    """The median with a 95 % interval whose ends are two of the values.

    Each value is above the true median with probability 1/2, whatever the distribution, so the number of those is
    binomial. A burst of background load or a skewed tail therefore moves the ends by a rank, not by its size; an
    interval from the standard deviation would be ruined by a single outlier. No two of fewer than six values enclose
    the median in 95 of 100 cases, so Student's t is used for them.

    >>> median_interval([5.0, 1.0, 2.0, 4.0, 3.0, 900.0])
    Interval(value=3.5, low=1.0, high=900.0)
    """
    if not values:
        return Interval(nan, -inf, inf)
    ordered, count = sorted(values), len(values)
    middle, rank = median(ordered), _rank(count)
    if rank:
        return Interval(middle, ordered[rank - 1], ordered[count - rank])
    if count < 2 or not all(map(isfinite, ordered)):
        return Interval(middle, -inf, inf)
    half = student_t(count - 1) * stdev(ordered) / sqrt(count)
    return Interval(middle, middle - half, middle + half)


def median_time(times: Sequence[float]) -> Interval:
    """``median_interval`` of times. A few times are treated as differing by factors, not by amounts, as slowdowns do,
    so that an interval of two or three never includes 0.

    >>> median_interval([40.0, 60.0]).low < 0 < median_time([40.0, 60.0]).low
    True
    """
    if _rank(len(times)) or not all(time > 0 for time in times):
        return median_interval(times)
    of_logs, middle = median_interval([log(time) for time in times]), median(times)
    return Interval(middle, middle * _exp(of_logs.low - of_logs.value), middle * _exp(of_logs.high - of_logs.value))


@lru_cache(maxsize=4096)
def _rank(count: int) -> int:
    """The largest rank from either end such that both tails together have at most 5 %; 0 if there is none."""
    allowed, tail, rank = 2**count // 40, 0, 0
    while (tail := tail + comb(count, rank)) <= allowed:
        rank += 1
    return rank


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The ratio a / b with its interval, from pairs taken close in time: common slowdowns cancel.

    >>> paired_ratio([2.0, 4.0, 6.0, 8.0, 10.0, 12.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).value
    2.0
    """
    logs = [_log_ratio(x, y) for x, y in zip(a, b, strict=True)]
    of_logs = median_interval([value for value in logs if not isnan(value)])
    return Interval(*(_exp(value) for value in (of_logs.value, of_logs.low, of_logs.high)))


def _log_ratio(a: float, b: float) -> float:
    """The log ratio. A slope that noise made negative shows only on which side the ratio is."""
    if a > 0 and b > 0:
        return log(a) - log(b)
    return nan if a <= 0 and b <= 0 else -inf if a <= 0 else inf


def _exp(value: float) -> float:
    return exp(value) if value < 700 else inf
