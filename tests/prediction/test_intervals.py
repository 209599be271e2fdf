"""Conformal intervals hold what they promise on times that nobody has seen."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction.intervals import ConformalIntervals, calibrate, conformal_quantile


def test_the_quantile_counts_the_row_to_come() -> None:
    scores = list(range(1, 10))
    assert conformal_quantile(scores, 0.9) == 9
    assert conformal_quantile(scores[:-1], 0.9) == inf
    assert conformal_quantile(list(range(1, 20)), 0.9) == 18
    assert conformal_quantile([], 0.5) == inf


@pytest.mark.parametrize("rows", [15, 40])
def test_coverage_of_few_rows_is_that_of_the_promise(rows: int) -> None:
    """Over many calibrations: at least 80 %, and at most one rank more."""
    random, held = np.random.default_rng(0), []
    for _ in range(800):
        times = np.exp(random.standard_t(3, rows + 20))
        low, high = calibrate(np.ones(rows), times[:rows], coverage=0.8).around(np.ones(20))
        held.append(np.mean((low <= times[rows:]) & (times[rows:] <= high)))
    assert 0.8 - 0.01 < np.mean(held) < 0.8 + 1 / (rows + 1) + 0.01


def test_each_bucket_has_its_own_factor() -> None:
    """Short times scatter ten times as much as long ones; both are held in nine of ten."""
    random = np.random.default_rng(1)

    def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
        predicted = np.exp(random.uniform(log(10), log(10_000), rows))
        return predicted, predicted * np.exp(random.standard_normal(rows) * np.where(predicted < 316, 0.5, 0.05))

    intervals = calibrate(*drawn(3000), coverage=0.9)
    predicted, times = drawn(20_000)
    low, high = intervals.around(predicted)
    held = (low <= times) & (times <= high)
    assert held[predicted < 250].mean() == pytest.approx(0.9, abs=0.03)
    assert held[predicted > 400].mean() == pytest.approx(0.9, abs=0.03)
    assert intervals.log_factors[0] > 5 * intervals.log_factors[-1]


def test_few_rows_share_a_factor_and_too_few_have_no_bound() -> None:
    assert calibrate(np.arange(1.0, 60), np.arange(1.0, 60) * 1.1).edges_us == ()
    low, high = calibrate(np.ones(8), np.ones(8)).around(np.ones(1))
    assert (low[0], high[0]) == (0.0, inf)


def test_the_record_gives_the_intervals_back() -> None:
    intervals = ConformalIntervals(0.9, (10.0,), (0.5, inf))
    assert intervals.to_json()["log_factors"] == [0.5, None]
    assert ConformalIntervals.from_json(intervals.to_json()) == intervals


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"coverage": 0.9, "edges_us": [1.0], "log_factors": [0.1]},
        {"coverage": 0.9, "edges_us": [2.0, 1.0], "log_factors": [0.1, 0.1, 0.1]},
        {"coverage": 0.9, "edges_us": [], "log_factors": [-0.1]},
        {"coverage": "all", "edges_us": [], "log_factors": [0.1]},
    ],
)
def test_a_wrong_record_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"^intervals need"):
        ConformalIntervals.from_json(record)


def test_a_coverage_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="coverage must lie between 0 and 1, got 1"):
        calibrate(np.ones(9), np.ones(9), coverage=1)
