"""Cache states: what runs before a call is no part of its time, and the intervals know what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from convwright.errors import BadInput
from convwright.measuring.cache import Cache, Flush, before_each, last_level_cache_bytes
from convwright.measuring.call import After
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import Outcome, compare
from convwright.measuring.regression import paired_ratio
from convwright.measuring.timer import Timing, measure, measure_calls, measure_together
from measuring.fake_clock import FakeClock

FLUSH_US = 40.0


def flush() -> float:
    return FLUSH_US


def cold(costs_us: dict[str, float], clock: FakeClock, seed: int, budget_us: float = 3e6) -> dict[str, Timing]:
    calls: dict[str, Callable[[], object]] = {name: lambda cost=cost: cost for name, cost in costs_us.items()}
    return measure_calls(calls, clock=clock, budget_us=budget_us, seed=seed, before=dict.fromkeys(calls, flush))


@pytest.mark.parametrize("leaves_out", [False, True])
def test_what_runs_before_is_not_in_the_time(leaves_out: bool) -> None:
    clock = FakeClock(1, drift=0.0, overhead_us=0.0 if leaves_out else 8.0, leaves_out_before=leaves_out)
    timing = cold({"": 7.0}, clock, 1)[""]
    assert timing.call_us.low <= 7.0 <= timing.call_us.high
    assert timing.call_us.relative_halfwidth < 0.05


def test_the_interval_of_a_difference_holds_the_truth() -> None:
    inside = 0
    for seed in range(50):
        interval = cold({"": 7.0}, FakeClock(seed, drift=0.0), seed, budget_us=5e5)[""].call_us
        inside += interval.low <= 7.0 <= interval.high
    assert inside >= 45  # 95 %, less two standard deviations of counting


def test_the_ratio_of_two_differences_holds_the_truth() -> None:
    inside = 0
    for seed in range(50):
        found = cold({"a": 21.0, "b": 7.0}, FakeClock(seed), seed, budget_us=5e5)
        ratio = paired_ratio(found["a"].round_slopes_us, found["b"].round_slopes_us)
        inside += ratio.low <= 3.0 <= ratio.high
    assert inside >= 45


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, Outcome.SAME), (1.03, Outcome.SLOW)])
def test_verdicts_hold_for_differences(factor: float, outcome: Outcome) -> None:
    found: Counter[Outcome] = Counter()
    for seed in range(25):
        timings = cold({"a": 30.0 * factor, "b": 30.0}, FakeClock(seed, noise=0.005), seed)
        found[compare(timings["a"], timings["b"]).outcome] += 1
    assert found[outcome] >= 24


def test_calls_share_what_runs_before_them() -> None:
    clock = FakeClock(0)
    cold(dict.fromkeys("abc", 30.0), clock, 0, budget_us=1e5)
    last = clock.samples[-12:]  # four callables of three sizes
    assert sum(call is flush for call, _ in last) == 3


def test_a_call_without_a_before_is_timed_as_ever() -> None:
    calls = {"cold": lambda: 7.0, "hot": lambda: 7.0}
    found = measure_calls(calls, clock=FakeClock(2), budget_us=1e6, before={"cold": flush})
    assert found["hot"].call_us.value == pytest.approx(7.0, rel=0.03)
    assert found["cold"].call_us.value == pytest.approx(7.0, rel=0.1)


def test_a_difference_that_noise_swallows_is_said_to_be_unknown() -> None:
    timing = cold({"": 0.01}, FakeClock(3, noise=0.05), 3, budget_us=2e4)[""]
    assert timing.call_us.low < 0.01 < timing.call_us.high
    assert timing.unstable is not None
    assert "larger budget" in timing.unstable


def test_samples_of_calls_that_take_turns_begin_with_the_same_one() -> None:
    order: list[int] = []
    calls = [lambda k=k: float(order.append(k) or 7.0) for k in range(5)]  # type: ignore[func-returns-value]
    clock = FakeClock(0)
    measure(calls, clock=clock, device="cpu", budget_us=1e5)
    assert {n % 5 for _, n in clock.samples} == {0}


def test_names_that_are_not_measured() -> None:
    with pytest.raises(BadInput, match="not measured: b"):
        measure_calls({"a": lambda: 1.0}, clock=FakeClock(), budget_us=1e4, before={"b": flush})


def test_the_wall_clock_reads_the_call_alone() -> None:
    spent: list[str] = []

    def long() -> None:
        spent.append("before")
        sum(range(100_000))

    after = After(long, lambda: spent.append("call"))
    taken_us = min(WallClock().time_us(after, 3) for _ in range(20))
    assert spent[:4] == ["before", "call", "before", "call"]
    assert taken_us < 100
    assert after() is None
    assert spent[-2:] == ["before", "call"]


def test_hot_needs_nothing_and_network_needs_to_know_what_is_warm() -> None:
    assert before_each(Cache.HOT, "cpu") is None
    with pytest.raises(BadInput, match="needs `warm`"):
        before_each(Cache.NETWORK, "cpu")
    with pytest.raises(BadInput, match="no other state takes it"):
        before_each(Cache.COLD, "cpu", warm=[torch.ones(1)])
    with pytest.raises(BadInput, match="device of the call, cuda"):
        before_each(Cache.NETWORK, "cuda", warm=[torch.ones(1)])


def test_a_flush_reads_more_than_the_cache_holds_and_its_pages_are_its_own() -> None:
    made = Flush(torch.device("cpu"))
    assert made.nbytes >= 4 * last_level_cache_bytes(threads=1)
    assert made._buffer.min() == 1  # written to: unwritten memory is one page of zeros for all
    made()
    assert made._sum.item() > 0


def cpu(root: Path, number: int, caches: dict[int, tuple[str, str]]) -> None:
    for level, (size, shared) in caches.items():
        folder = root / f"cpu{number}" / "cache" / f"index{level}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(text + "\n")


def test_the_last_level_cache_of_every_die_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.measuring.cache._own_cpus", lambda: range(4))
    for number in range(4):
        cpu(tmp_path, number, {1: ("48K", str(number)), 3: ("32M", "0-1" if number < 2 else "2-3")})
    assert last_level_cache_bytes(threads=8, root=tmp_path) == 2 * 32 * 2**20
    assert last_level_cache_bytes(threads=1, root=tmp_path) == 32 * 2**20


def test_an_unknown_cache_is_assumed_to_be_large(tmp_path: Path) -> None:
    assert last_level_cache_bytes(threads=4, root=tmp_path) == 64 * 2**20


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16])
def test_what_is_to_be_warm_may_have_any_dtype(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.measuring.cache.last_level_cache_bytes", lambda threads: 2**16)
    before = before_each(Cache.NETWORK, "cpu", warm=[torch.ones(4, 6).to(dtype).t()])
    assert before is not None
    before()


def test_cold_memory_takes_longer_and_warm_memory_does_not() -> None:
    x = torch.ones(2**18)  # 1 MiB: a core reads it from memory at several times the time it takes from the cache.
    calls = {"": lambda: x.sum()}
    for budget_us in (5e5, 2e6, 6e6):  # Another try is a longer one.
        hot, cold, warm = (
            measure_together(calls, cache=cache, warm=warm, threads=1, budget_us=budget_us)[""]
            for cache, warm in (("hot", ()), ("cold", ()), ("network", (x,)))
        )
        assert (hot.cache, cold.cache, warm.cache) == (Cache.HOT, Cache.COLD, Cache.NETWORK)
        assert dict(cold.conditions)["cache"] == "cold"
        if cold.call_us.low > 1.2 * hot.call_us.high and cold.call_us.low > warm.call_us.high:
            return
    pytest.fail(f"hot {hot.call_us}, cold {cold.call_us}, network {warm.call_us}")
