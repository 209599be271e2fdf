"""The timer's truths while other processes take the cores away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from convwright.measuring.compare import Outcome, compare
from convwright.measuring.subject import subjects_of
from convwright.measuring.timer import measure_calls
from measuring.fake_clock import FakeClock


def verdicts(factor: float) -> Counter[Outcome]:
    """50 runs beside a process that is busy two fifths of the time, in bursts of 10 to 100 ms."""
    found: Counter[Outcome] = Counter()
    for seed in range(50):
        calls = {"a": lambda: 7.0 * factor, "b": lambda: 7.0}
        timings = measure_calls(calls, clock=FakeClock(seed, busy=0.4), budget_us=3e6, seed=seed)
        found[compare(timings["a"], timings["b"]).outcome] += 1
    return found


def test_a_call_is_the_same_as_itself_in_95_of_100() -> None:
    assert verdicts(1.0)[Outcome.SAME] >= 48


@pytest.mark.parametrize(("factor", "outcome"), [(1.03, Outcome.SLOW), (1 / 1.03, Outcome.FAST)])
def test_more_work_is_found_in_95_of_100(factor: float, outcome: Outcome) -> None:
    assert verdicts(factor)[outcome] >= 48


def test_little_that_is_false_is_said_where_the_machine_is_never_quiet() -> None:
    found: Counter[Outcome] = Counter()
    for seed in range(60):
        timings = measure_calls(
            {"a": lambda: 7.0, "b": lambda: 7.0}, clock=FakeClock(seed, busy=1.0), budget_us=3e5, seed=seed
        )
        found[compare(timings["a"], timings["b"]).outcome] += 1
    assert found[Outcome.FAST] + found[Outcome.SLOW] <= 3  # what intervals of 95 % allow


def test_equal_calls_get_equal_samples_however_late_their_turn_comes() -> None:
    """Or else other work would fall into the samples of the one more often than into those of the other."""
    for cost_us in (3e3, 1e4, 1.1e4, 3e4, 1e5):
        clock = FakeClock(0, noise=0.001, outliers=0.0, drift=0.0)
        calls = {name: lambda: cost_us for name in "abcd"}  # noqa: B023
        found = subjects_of(calls, {}, clock, budget_us=2e6, end_us=2e6)
        assert len({subject.series.sizes for subject in found.values()}) == 1


@pytest.mark.parametrize(
    ("longest_us", "budget_us", "long", "short"),
    [
        (2e4, 1.5e5, 1, 3),
        (2e4, 3e5, 2, 3),
        (2e4, 4e6, 3, 3),
        (200.0, 100.0, 2, 3),  # a sample of one call would be the overhead longer
    ],
)
def test_where_the_budget_is_short_long_calls_get_short_samples(
    longest_us: float, budget_us: float, long: int, short: int
) -> None:
    clock = FakeClock(0, noise=0.001, outliers=0.0, drift=0.0)
    calls = {"long": lambda: longest_us / 2, "longer": lambda: longest_us, "short": lambda: 2.0}
    found = subjects_of(calls, {}, clock, budget_us=budget_us, end_us=clock.now_us() + budget_us)
    sizes = {name: len(subject.series.sizes) for name, subject in found.items()}
    assert sizes == {"long": long, "longer": long, "short": short}


def test_calls_of_all_lengths_do_not_make_the_longest_take_more_of_a_short_budget() -> None:
    clock = FakeClock(0, noise=0.001, outliers=0.0, drift=0.0)
    calls = {"own": lambda: 3000.0, "other": lambda: 2500.0, "pack": lambda: 200.0}
    begun_us = clock.now_us()
    measure_calls(calls, clock=clock, budget_us=14_700.0)
    assert clock.now_us() - begun_us <= 2 * 14_700.0


def test_a_first_look_that_was_disturbed_does_not_decide() -> None:
    class Once(FakeClock):
        def time_us(self, call: Callable[[], object], n: int) -> float:
            return super().time_us(call, n) * (1000 if len(self.samples) == 1 else 1)

    clock = Once(0, noise=0.0, outliers=0.0, drift=0.0)
    sizes = subjects_of({"": lambda: 2.0}, {}, clock, budget_us=1e6, end_us=1e6)[""].series.sizes
    assert sizes[0] * 2.0 + 8.0 >= 0.8 * clock.sample_us
