"""The interval of a sum of predictions."""

from __future__ import annotations

from math import hypot, inf

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convwright.core.finding import Interval
from convwright.prediction.sums import summed

times = some.floats(0.1, 1e4)
parts = some.lists(some.tuples(some.sampled_from("abc"), times, some.floats(1, 9), some.floats(1, 9)), min_size=1)


def intervals(drawn: list[tuple[str, float, float, float]]) -> list[tuple[str, Interval]]:
    return [(family, Interval(value, value / less, value * more)) for family, value, less, more in drawn]


@given(parts)
def test_a_sum_is_between_independent_and_one_family(drawn: list[tuple[str, float, float, float]]) -> None:
    given_ = intervals(drawn)
    total, every = summed(given_), [part for _, part in given_]
    above = total.high - total.value
    assert total.value == pytest.approx(sum(part.value for part in every))
    assert above <= sum(part.high - part.value for part in every) * (1 + 1e-9)
    assert above >= hypot(*(part.high - part.value for part in every)) * (1 - 1e-9)
    assert 0 < total.low <= total.value <= total.high


@given(parts)
def test_steps_of_one_family_err_together(drawn: list[tuple[str, float, float, float]]) -> None:
    alike = [("gemm", part) for _, part in intervals(drawn)]
    total = summed(alike)
    assert total.low == pytest.approx(sum(part.low for _, part in alike))
    assert total.high == pytest.approx(sum(part.high for _, part in alike))


def test_what_has_no_bound_leaves_the_sum_without_one() -> None:
    total = summed([("gemm", Interval(2.0, 1.0, 3.0)), ("pool", Interval(1.0, 1.0, inf))])
    assert (total.value, total.low, total.high) == (3.0, 2.0, inf)
    assert summed([]) == Interval(0.0, 0.0, 0.0)
