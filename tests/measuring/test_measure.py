"""What is asked of `measure` beside the time, and what its result is as data."""

from __future__ import annotations

import json
import sys
from functools import partial
from math import inf, nan

import pytest
import torch

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.measuring.compare import Outcome, Verdict, compare
from convwright.measuring.energy import Energy
from convwright.measuring.timer import Timing, measure, measure_together
from measuring.fake_clock import FakeClock


def small() -> torch.Tensor:
    return torch.ones(64).exp()


def test_the_result_carries_its_conditions() -> None:
    found = dict(measure(small, budget_us=2e4).conditions)
    assert {"device", "torch", "threads", "cache", "clock"} <= found.keys()
    assert (found["threads"], found["cache"], found["clock"]) == (str(torch.get_num_threads()), "hot", "WallClock")


def test_threads_are_pinned_meanwhile_and_put_back() -> None:
    before, seen = torch.get_num_threads(), set()

    def call() -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return small()

    timing = measure(call, budget_us=1e4, threads=before + 1)
    assert seen == {before + 1}
    assert dict(timing.conditions)["threads"] == str(before + 1)
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0, device="cpu", threads=before + 1)
    assert torch.get_num_threads() == before


def test_memory_and_energy_are_found_only_when_asked_for() -> None:
    timing = measure(small, budget_us=1e4)
    assert (timing.peak_extra_bytes, timing.energy) == (None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process held at most")
def test_peak_extra_memory() -> None:
    """Of a large tensor: Linux counts a process's pages to within tenths of a MiB."""
    found = measure(lambda: torch.ones(2**24), budget_us=1e4, memory=True).peak_extra_bytes
    assert found == pytest.approx(64 * 2**20, rel=0.1)


def test_energy_is_none_where_nothing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from convwright.measuring import timer
    from convwright.measuring.energy import NoCounter

    monkeypatch.setattr(timer, "counter_of", lambda _: NoCounter())
    assert measure(small, budget_us=1e4, energy=True).energy is None


def test_energy_goes_through_the_same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from convwright.measuring import timer

    class Steady:
        source = "fake"

        def __init__(self, clock: FakeClock) -> None:
            self._clock = clock

        def read_mj(self) -> float:
            return self._clock.now_us() / 1000 * 250.0

    clock = FakeClock(1)
    monkeypatch.setattr(timer, "counter_of", lambda _: Steady(clock))
    monkeypatch.setattr("convwright.measuring.energy.sleep", lambda _: None)
    found = measure(lambda: 40.0, clock=clock, device="cpu", budget_us=1e5, energy=True).energy
    assert found is not None
    assert found.call_mj.value == pytest.approx(10.0)
    assert found.power_w == pytest.approx(250.0)


MISTAKES = [
    ({"threads": 0}, "`threads` must be at least 1, got 0"),
    ({"threads": "two"}, "`threads` must be a whole number, got 'two'"),
    ({"cache": "network", "warm": [3]}, "`warm` must be tensors, got one int among them"),
    ({"cache": "network", "warm": 3}, "`warm` must be a sequence of tensors, got int"),
    ({"cache": "network", "warm": torch.ones(2, 2)}, "`warm` must be a sequence of tensors, got Tensor"),
    ({"cache": "lukewarm"}, "cache must be one of hot, cold, network"),
    ({"cache": "network"}, "needs `warm`"),
    ({"cache": "cold", "energy": True}, "hot cache only"),
    ({"device": "mps"}, "got device 'mps'"),
    ({"device": "nonsense"}, "got device 'nonsense'"),
    ({"threads": 100_000}, "`threads` must be at most .* for each core of this machine, got 100000"),
    ({"budget_us": -1}, "`budget_us` takes a finite number above 0, got -1"),
    ({"budget_us": nan}, "`budget_us` takes a finite number above 0, got nan"),
    ({"budget_us": inf}, "`budget_us` takes a finite number above 0, got inf"),
    ({"precision": 0}, "`precision` takes a finite number above 0, got 0"),
    ({"precision": nan}, "`precision` takes a finite number above 0, got nan"),
]


@pytest.mark.parametrize(("options", "sentence"), MISTAKES, ids=[sentence for _, sentence in MISTAKES])
def test_mistakes_are_said_in_words(options: dict, sentence: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(BadInput, match=sentence):
        measure(small, **options)


def test_calls_that_are_timed_together_run_on_one_device() -> None:
    with pytest.raises(BadInput, match="one device, got cpu, meta"):
        measure_together({"a": small, "b": lambda: torch.ones(2, device="meta")})


def test_calls_that_are_timed_together_can_be_compared() -> None:
    calls = {"once": lambda: sum(range(2000)), "thrice": lambda: sum(range(6000))}
    for budget_us in (2e5, 1e6, 4e6):  # Another try is a longer one.
        found = measure_together(calls, device="cpu", budget_us=budget_us)
        if compare(found["thrice"], found["once"]).outcome is Outcome.SLOW:
            return
    pytest.fail(str(compare(found["thrice"], found["once"])))


def test_progress_grows_to_the_end() -> None:
    shares: list[float] = []
    measure_together({"": lambda: 50.0}, clock=FakeClock(0, noise=0.5), budget_us=1e5, progress=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.2
    assert 0.9 < shares[-1] <= 1.0


def test_a_timing_is_strict_json() -> None:
    energy = Energy(Interval(3.0, -inf, inf), 250.0, None, 1000, "nvml")
    timing = Timing(
        Interval(7.0, nan, inf), None, 3, (7.0, nan), None, 5, energy=energy, conditions=(("device", "a GPU"),)
    )
    record = json.loads(json.dumps(timing.to_json(), allow_nan=False))
    assert record["call_us"] == {"value": 7.0, "low": None, "high": None}
    assert record["round_slopes_us"] == [7.0, None]
    assert record["energy"]["call_mj"]["low"] is None
    assert record["conditions"] == {"device": "a GPU"}
    assert record["cache"] == "hot"
    assert "run" not in record


def test_a_verdict_is_strict_json() -> None:
    record = json.loads(json.dumps(Verdict(Outcome.FAST, Interval(0.5, 0.0, inf), 2).to_json(), allow_nan=False))
    assert record == {"outcome": "fast", "ratio": {"value": 0.5, "low": 0.0, "high": None}, "rounds": 2}


@pytest.mark.parametrize("cost_us", [2.1, 4.3, 6.2, 9.4, 15.5])
def test_a_call_that_is_met_again_is_sampled_as_before(cost_us: float) -> None:
    """Its time is seen a little different; on a GPU its samples are graphs, and to capture them is what takes long."""
    clock = FakeClock(3, noise=0.01, outliers=0.0)
    call = partial(float, cost_us)
    for _ in range(8):
        measure_together({"": call}, clock=clock, budget_us=2e4)
    assert len({n for _, n in clock.samples}) <= 10
