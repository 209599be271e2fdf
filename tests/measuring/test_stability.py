"""What speaks against a figure."""

from __future__ import annotations

import pytest

from convwright.core.finding import Interval
from convwright.measuring.disturbances.stability import complaints


def said(call_us: Interval, slopes_us: list[float]) -> list[str]:
    return complaints(slopes_us, call_us, 0.01, bend=0.0, slowed_down=None, background=())


def test_nothing_speaks_against_a_narrow_interval() -> None:
    assert said(Interval(10.0, 9.99, 10.01), [10.0] * 12) == []


@pytest.mark.parametrize("us", [-16.2, 0.0])
def test_a_time_that_noise_made_negative_is_no_time_however_narrow_its_interval(us: float) -> None:
    (complaint,) = said(Interval(us, us, us), [us] * 12)
    assert "noise hides the time of a call" in complaint


def test_a_wide_interval_and_a_drift_are_told() -> None:
    wide, drift = said(Interval(10.0, 8.0, 12.0), [9.0] * 6 + [11.0] * 6)
    assert "known to ±20.0% only, ±0.5% was asked, after 12 rounds" in wide
    assert "later rounds took 1.222 times as long as earlier ones" in drift
