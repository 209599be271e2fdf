"""The timer beside a clock that knows the truth, and for a moment beside the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns

import pytest

from convwright.errors import BadInput
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import compare
from convwright.measuring.regression import paired_ratio
from convwright.measuring.timer import Timing, measure, measure_calls, measure_together
from measuring.fake_clock import FakeClock


def taking(cost_us: float) -> Callable[[], float]:
    return lambda: cost_us


def run_123(seed: int) -> dict[str, Timing]:
    calls = {name: taking(7.0 * factor) for name, factor in (("f", 1), ("ff", 2), ("fff", 3))}
    return measure_calls(calls, clock=FakeClock(seed), budget_us=2e6, seed=seed)


def test_slopes_of_f_ff_fff_are_1_2_3_within_their_intervals() -> None:
    inside = 0
    for seed in range(200):
        found = run_123(seed)
        for name, truth in (("ff", 2.0), ("fff", 3.0)):
            ratio = paired_ratio(found[name].round_slopes_us, found["f"].round_slopes_us)
            inside += ratio.low <= truth <= ratio.high
    assert inside >= 0.93 * 400  # 95 in 100, less two standard deviations of counting


def test_the_interval_holds_the_truth_although_rounds_end_when_it_is_narrow() -> None:
    inside = 0
    for seed in range(200):
        timing = measure(taking(7.0), clock=FakeClock(seed, drift=0.0), budget_us=1e6, seed=seed)
        inside += timing.call_us.low <= 7.0 <= timing.call_us.high
    assert inside >= 0.92 * 200


def test_what_no_number_of_rounds_shows_is_in_the_interval_and_not_in_the_ratio() -> None:
    calls = {"a": taking(2.0), "b": taking(2.2)}
    exact, found = (
        measure_calls(calls, clock=FakeClock(0, noise=0.001, steady_to_us=by), budget_us=1e6) for by in (0.0, 0.1)
    )
    for name in calls:
        one, other = exact[name].call_us, found[name].call_us
        assert (other.value, other.low, other.high) == (one.value, one.low - 0.1, one.high + 0.1)
        assert found[name].unstable == exact[name].unstable
    assert compare(found["b"], found["a"]) == compare(exact["b"], exact["a"])


def test_the_overhead_is_found_and_is_not_in_the_slope() -> None:
    timing = measure(taking(2.0), clock=FakeClock(3, overhead_us=50.0), budget_us=1e6)
    assert timing.overhead_us == pytest.approx(50.0, rel=0.1)
    assert timing.call_us.value == pytest.approx(2.0, rel=0.03)


def test_samples_are_long_enough_for_the_clock() -> None:
    clock = FakeClock(0, noise=0.0, outliers=0.0, drift=0.0)
    measure(taking(0.5), clock=clock, budget_us=1e5)
    assert 0.8 * clock.sample_us <= 8.0 + min(n for _, n in clock.samples[-3:]) * 0.5 < 2 * clock.sample_us


def test_calls_are_interleaved_in_random_order() -> None:
    clock, calls = FakeClock(0), {name: taking(200.0) for name in "abc"}
    measure_calls(calls, clock=clock, budget_us=1e6, seed=5)
    rounds = [clock.samples[start : start + 9] for start in range(12, len(clock.samples), 9)]
    assert all({call for call, _ in samples} == set(calls.values()) for samples in rounds)
    assert len({tuple(samples) for samples in rounds}) > len(rounds) // 2


def test_equal_seeds_give_equal_orders() -> None:
    assert run_123(4)["f"].round_slopes_us == run_123(4)["f"].round_slopes_us


@pytest.mark.parametrize("budget_us", [2e4, 1e5, 1e6])
def test_the_budget_is_respected(budget_us: float) -> None:
    clock = FakeClock(0, noise=0.3)
    found = measure_calls({name: taking(5.0) for name in "abcd"}, clock=clock, budget_us=budget_us, precision=1e-4)
    assert clock.now_us() <= 1.1 * budget_us
    assert found["a"].unstable is not None
    assert "larger budget" in found["a"].unstable


def test_a_call_longer_than_the_budget_is_measured_twice() -> None:
    clock = FakeClock(0)
    timing = measure_calls({"": taking(5e5)}, clock=clock, budget_us=1e5)[""]
    assert timing.samples == 2
    assert timing.overhead_us is None
    assert timing.call_us.value == pytest.approx(5e5, rel=0.1)
    assert len(clock.samples) == 4


@pytest.mark.parametrize("cost_us", [6e3, 2.5e4, 5e5])
def test_on_a_cpu_a_small_budget_buys_six_rounds_for_nine_calls_of_each_function(cost_us: float) -> None:
    made: list[str] = []

    def making(name: str, takes_us: float) -> Callable[[], float]:
        def call() -> float:
            made.append(name)
            return takes_us

        return call

    calls = {"a": making("a", cost_us), "b": making("b", 2 * cost_us)}
    found = measure_together(calls, clock=FakeClock(0), budget_us=5e4)
    assert [len(timing.round_slopes_us) for timing in found.values()] == [6, 6]
    assert (made.count("a"), made.count("b")) == (9, 9)


def test_bounds_of_few_long_calls_lie_within_their_rounds() -> None:
    inside = 0
    for seed in range(200):
        clock = FakeClock(seed, noise=0.3, drift=0.0, outliers=0.0, overhead_us=0.0)
        timing = measure(taking(2.5e4), clock=clock, budget_us=1e5, seed=seed)
        rounds_us = timing.round_slopes_us
        assert (timing.call_us.low, timing.call_us.high) == (min(rounds_us), max(rounds_us))
        assert timing.unstable is not None
        inside += timing.call_us.low <= 2.5e4 <= timing.call_us.high
    assert inside >= 0.93 * 200  # 97 in 100, less two standard deviations of counting


def test_bounds_beside_other_work_stay_near_the_time() -> None:
    """With two rounds, one of these 200 upper bounds is 48,000 times the time."""
    for seed in range(200):
        clock = FakeClock(seed, drift=0.0, outliers=0.0, busy=1.0)
        timing = measure(taking(2.5e4), clock=clock, budget_us=1e5, seed=seed)
        assert timing.call_us.low >= 0.9 * 2.5e4
        assert timing.call_us.high <= 10 * timing.call_us.value


def test_no_time_is_said_to_be_less_than_nothing() -> None:
    noisy = FakeClock(5, noise=0.8)
    timing = measure_calls({"": taking(9.0)}, clock=noisy, budget_us=100.0)[""]
    assert len(timing.round_slopes_us) < 6
    assert timing.unstable is not None
    assert 0.0 <= timing.call_us.low <= timing.call_us.value <= timing.call_us.high


def test_rounds_end_early_where_nothing_disturbs() -> None:
    clock = FakeClock(0, noise=0.001, outliers=0.0, drift=0.0)
    timing = measure(taking(7.0), clock=clock, budget_us=1e9)
    assert timing.unstable is None
    assert timing.samples <= 60


def test_drifting_clocks_are_said() -> None:
    clock = FakeClock(0, noise=0.001, drift=0.2)
    unstable = measure(taking(7.0), clock=clock, budget_us=5e4, precision=0.002).unstable
    assert unstable is not None
    assert "lock the clocks" in unstable


def test_time_that_is_not_linear_is_said() -> None:
    class Queue(FakeClock):
        def time_us(self, call: Callable[[], object], n: int) -> float:
            return super().time_us(call, n) * (1.0 if n < 40 else 1.5)

    unstable = measure(taking(7.0), clock=Queue(0, drift=0.0), budget_us=1e6).unstable
    assert unstable is not None
    assert "not linear" in unstable


def test_what_only_begins_to_compute_is_not_timed() -> None:
    async def later() -> None: ...

    def step_by_step() -> Iterator[int]:
        yield 1

    for call in (later, step_by_step):
        with pytest.raises(BadInput, match="computes nothing yet: give a function that runs it"):
            measure(call)


def test_bad_input_is_said_in_words() -> None:
    with pytest.raises(BadInput, match="`budget_us` takes a finite number above 0, got 0"):
        measure(taking(1.0), clock=FakeClock(), budget_us=0)
    with pytest.raises(BadInput, match=r"a call must be a function, or a sequence of at least one, got \[\]"):
        measure([], clock=FakeClock())
    for given in (3, [taking(1.0), 3], None):
        with pytest.raises(BadInput, match="a call must be a function, or a sequence of at least one, got "):
            measure(given, clock=FakeClock())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"`calls` must name each call, for example \{'one': call\}, got 3"):
        measure_together(3)  # type: ignore[arg-type]


def test_calls_that_last_1_2_3_take_that_on_the_wall_clock() -> None:
    def lasting(us: int) -> Callable[[], object]:
        def run() -> None:
            end = perf_counter_ns() + 1000 * us
            while perf_counter_ns() < end:
                pass

        return run

    calls = {str(k): lasting(200 * k) for k in (1, 2, 3)}
    for seed in range(5):
        found = measure_calls(calls, clock=WallClock(), budget_us=2e6, seed=seed)
        if not any(timing.unstable for timing in found.values()):
            break  # or else other work had both cores, and the figures say so
    slopes = {int(k): timing.round_slopes_us for k, timing in found.items()}
    for k in (1, 2, 3):
        assert found[str(k)].call_us.value == pytest.approx(200 * k, rel=0.01)
        assert paired_ratio(slopes[k], slopes[1]).value == pytest.approx(k, rel=0.01)
