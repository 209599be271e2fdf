"""Measurements go to JSON and back; what an eager call takes; the physical limits."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.limits import Limits, limits
from convwright.core.problem import ConvProblem

numbers = st.floats(allow_nan=False)
intervals = st.builds(Interval, numbers, numbers, numbers)
measurements = st.builds(
    Measurement,
    device_us=intervals,
    host_us=st.none() | intervals,
    prepare_us=st.none() | intervals,
    errors=st.lists(st.builds(KindError, st.text(max_size=9), numbers, numbers), max_size=3).map(tuple),
    workspace_bytes=st.integers(0, 1 << 40),
    samples=st.integers(0, 1000),
    conditions=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3).map(tuple),
    energy_mj=st.none() | numbers,
)


@given(measurements)
def test_json_and_back(measurement: Measurement) -> None:
    assert Measurement.from_json(json.loads(json.dumps(measurement.to_json()))) == measurement


def measured(device: float, host: float | None = None, prepare: float | None = None) -> Measurement:
    def around(value: float | None) -> Any:
        return None if value is None else Interval(value, value - 1, value + 1)

    return Measurement(around(device), around(host), around(prepare), (), 0, 1, ())


@pytest.mark.parametrize(
    ("measurement", "changing", "constant"),
    [
        (measured(10), 10, 10),
        (measured(10, host=30), 30, 30),
        (measured(10, prepare=5), 15, 10),
        (measured(10, host=12, prepare=5), 15, 12),
    ],
)
def test_an_eager_call_takes_the_slower_of_device_and_host(
    measurement: Measurement, changing: float, constant: float
) -> None:
    assert measurement.eager_us(weights_change=True).value == changing
    assert measurement.eager_us(weights_change=False).value == constant


def test_intervals_of_an_eager_call_add_up() -> None:
    eager = measured(10, prepare=5).eager_us(weights_change=True)
    assert (eager.low, eager.high) == (13, 17)


def test_relative_halfwidth() -> None:
    assert Interval(10.0, 9.0, 11.0).relative_halfwidth == 0.1
    assert Interval(0.0, 0.0, 0.0).relative_halfwidth == inf


PROBLEM = ConvProblem.of((1, 1, 4), (1, 1, 1))


def bounds(arithmetic: Arithmetic, **facts: Any) -> Limits:
    candidate = Candidate(PROBLEM, "a", "b", (), arithmetic, 0, True, Source.RULE)
    return limits(candidate, DeviceFacts("a GPU", "cuda", "sm_90", **facts))


PEAKS = ((Arithmetic.FP32, 2.0), (Arithmetic.TF32, 4.0))


def test_limits_are_bytes_and_arithmetic() -> None:
    bound = bounds(Arithmetic.FP32, bandwidth_bytes_per_us=9.0, peak_flops_per_us=PEAKS)
    assert (bound.bytes_us, bound.arithmetic_us, bound.limit_us) == (4.0, 4.0, 4.0)
    assert bound.share(16.0) == 0.25


def test_three_products_take_three_times_as_long_on_the_unit_that_computes_them() -> None:
    assert bounds(Arithmetic.TF32, peak_flops_per_us=PEAKS).arithmetic_us == 2.0
    assert bounds(Arithmetic.TF32X3, peak_flops_per_us=PEAKS).arithmetic_us == 6.0


def test_what_is_not_known_is_none() -> None:
    bound = bounds(Arithmetic.FP64, peak_flops_per_us=PEAKS)
    assert (bound.bytes_us, bound.arithmetic_us, bound.limit_us, bound.share(1.0)) == (None, None, None, None)
    assert bounds(Arithmetic.FP64, bandwidth_bytes_per_us=36.0).limit_us == 1.0
