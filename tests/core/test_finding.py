"""Measurements go to JSON and back; what an eager call takes."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.finding import Interval, KindError, Measurement, PairedRatio

numbers = st.floats(allow_nan=False)
bounds = st.tuples(numbers, numbers).map(sorted)
intervals = st.builds(lambda value, ends: Interval(value, *ends), numbers, bounds)
measurements = st.builds(
    Measurement,
    device_us=intervals,
    prepare_us=st.none() | intervals,
    errors=st.lists(st.builds(KindError, st.text(max_size=9), numbers, numbers), max_size=3).map(tuple),
    workspace_bytes=st.integers(0, 1 << 40),
    samples=st.integers(0, 1000),
    conditions=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3).map(tuple),
    energy_mj=st.none() | numbers,
    energy_halfwidth_mj=st.none() | numbers,
    peak_bytes=st.none() | st.integers(0, 1 << 40),
    doubt=st.none() | st.text(max_size=9),
    paired=st.none()
    | st.builds(PairedRatio, st.text(max_size=9), intervals, st.integers(1, 1000), st.none() | intervals),
)


@settings(max_examples=30)
@given(measurements)
def test_json_and_back(measurement: Measurement) -> None:
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement


@settings(max_examples=20)
@given(measurements)
def test_host_times_of_earlier_versions_are_ignored(measurement: Measurement) -> None:
    record = measurement.to_json() | {"host_us": {"value": 2.0, "low": 1.0, "high": 3.0}, "prepare_host_us": None}
    assert Measurement.from_json(record) == measurement


def measured(device: float, prepare: float | None = None) -> Measurement:
    def around(value: float | None) -> Any:
        return None if value is None else Interval(value, value - 1, value + 1)

    return Measurement(around(device), around(prepare), (), 0, 1, ())


@pytest.mark.parametrize(("measurement", "changing"), [(measured(10), 10), (measured(10, prepare=5), 15)])
def test_a_call_packs_where_weights_change(measurement: Measurement, changing: float) -> None:
    assert measurement.call_us(weights_change=True).value == changing
    assert measurement.call_us(weights_change=False).value == 10


def test_intervals_of_a_call_add_up() -> None:
    call = measured(10, prepare=5).call_us(weights_change=True)
    assert (call.low, call.high) == (13, 17)


def test_bounds_that_are_words_are_read_as_numbers() -> None:
    for bounds in (("-inf", "inf"), ("1.5", "inf"), (1.5, "inf")):
        got = Interval.from_json({"value": 2.0, "low": bounds[0], "high": bounds[1]})
        assert (got.low, got.high) == tuple(map(float, bounds))


def test_relative_halfwidth() -> None:
    assert Interval(10.0, 9.0, 11.0).relative_halfwidth == 0.1
    assert Interval(0.0, 0.0, 0.0).relative_halfwidth == inf


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval(2.0, 1.0, 3.0), Interval(2.0, 1.0, 3.0)),
        (Interval(2.0, -1.0, 5.0), Interval(2.0, 0.0, 5.0)),
        (Interval(-1.0, -3.0, 1.0), Interval(-1.0, -1.0, 1.0)),
        (Interval(1.0, -inf, inf), Interval(1.0, 0.0, inf)),
    ],
)
def test_known_above_0(interval: Interval, expected: Interval) -> None:
    assert interval.known_above_0() == expected


def test_a_packing_time_below_0_makes_no_call_shorter() -> None:
    assert measured(140.0, prepare=-90.0).call_us(weights_change=True) == Interval(140.0, 139.0, 141.0)
