"""Lines, quantiles and intervals against figures known from elsewhere."""

from __future__ import annotations

from math import exp, inf
from random import Random

import pytest

from convwright.core.finding import Interval
from convwright.measuring.regression import fit_line, median_interval, median_time, paired_ratio, student_t

# From printed tables.
QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "expected"), QUANTILES.items())
def test_student_t_agrees_with_the_tables(freedom: int, expected: float) -> None:
    assert student_t(freedom) == pytest.approx(expected, rel=2e-3)


def test_overhead_goes_into_the_intercept() -> None:
    line = fit_line([1, 3, 4], [107.0, 121.0, 128.0])
    assert line.intercept == pytest.approx(100.0)
    assert line.slope.value == pytest.approx(7.0)


def test_two_points_leave_the_slope_without_an_interval() -> None:
    assert fit_line([1, 2], [3.0, 5.0]).slope.high == inf


def test_the_interval_of_a_slope_holds_the_truth_in_95_of_100() -> None:
    random, inside = Random(1), 0
    for _ in range(2000):
        sizes = list(range(1, 9))
        slope = fit_line(sizes, [5 + 2 * n + random.gauss(0, 1) for n in sizes]).slope
        inside += slope.low <= 2 <= slope.high
    assert 0.935 <= inside / 2000 <= 0.965


@pytest.mark.parametrize("count", [2, 5, 6, 9, 25, 100])
def test_the_interval_of_a_median_holds_the_truth_in_95_of_100(count: int) -> None:
    random, inside = Random(count), 0
    for _ in range(2000):
        values = [random.gauss(10, 1) for _ in range(count)]
        interval = median_interval(values)
        inside += interval.low <= 10 <= interval.high
    assert inside / 2000 >= 0.94


@pytest.mark.parametrize("spread", [0.02, 0.3])
@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_the_interval_of_a_time_holds_the_truth_in_95_of_100(count: int, spread: float) -> None:
    random, inside = Random(count), 0
    for _ in range(2000):
        interval = median_time([10 * exp(random.gauss(0, spread)) for _ in range(count)])
        inside += interval.low <= 10 <= interval.high
    assert inside / 2000 >= 0.93


def test_few_times_leave_room_for_anything_but_nothing() -> None:
    """Two rounds tell what takes 9 from what takes 50, which a sum's interval, reaching below 0, does not."""
    slow, fast = [48.0, 57.0], [8.7, 9.3]
    assert median_interval(slow).low < 0
    assert median_time(slow).low > median_time(fast).high > 9.3
    assert median_time(slow).value == median_interval(slow).value
    nearly = median_interval([100.0, 101.0, 100.4]), median_time([100.0, 101.0, 100.4])
    assert nearly[1].low == pytest.approx(nearly[0].low, rel=1e-3)
    assert nearly[1].high == pytest.approx(nearly[0].high, rel=1e-3)


def test_noise_that_makes_a_time_negative_is_no_factor() -> None:
    assert median_time([-1.0, 4.0]) == median_interval([-1.0, 4.0])


def test_one_time_says_nothing_of_its_spread() -> None:
    assert median_time([3.0]) == Interval(3.0, 0.0, inf)


def test_outliers_move_the_interval_by_a_rank_only() -> None:
    calm = median_interval([float(value) for value in range(100, 140)])
    hit = median_interval([float(value) for value in range(100, 138)] + [1e9, 1e9])
    assert (hit.low, hit.value, hit.high) == (calm.low, calm.value, calm.high)


def test_one_value_says_nothing_of_its_spread() -> None:
    assert median_interval([3.0]).relative_halfwidth == inf


def test_common_drift_cancels_in_a_paired_ratio() -> None:
    drift = [1 + 0.1 * round_number for round_number in range(20)]
    ratio = paired_ratio([3 * factor for factor in drift], [2 * factor for factor in drift])
    assert ratio.low == pytest.approx(1.5)
    assert ratio.high == pytest.approx(1.5)


def test_negative_slopes_take_a_side_and_no_value() -> None:
    ratio = paired_ratio([-1.0, *[2.0] * 10, 2.0], [1.0, *[1.0] * 10, -1.0])
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_few_pairs_of_which_one_is_lost_in_noise_tell_nothing() -> None:
    ratio = paired_ratio([1.0, -2.0, 3.0], [1.0, 2.0, 3.0])
    assert (ratio.low, ratio.high) == (0.0, float("inf"))
    assert paired_ratio([1.0, -1.0], [-1.0, 1.0]).high == float("inf")
