"""What the timer says, made into a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, Measurement
from convwright.core.problem import ConvProblem
from convwright.measuring.timing import Timing
from convwright.tuning.trials import side_by_side
from convwright.tuning.trials.quick_timing import QuickTiming
from convwright.tuning.trials.side_by_side import Stopwatch, heat_us
from tuning.made import CPU

PROBLEM = ConvProblem.parse("ic4ih8oc4kh3")
RUN, PACK = Interval(50.0, 45.0, 55.0), Interval(-60.0, -90.0, 20.0)


def timing(call_us: Interval) -> Timing:
    return Timing(call_us, 1.0, 20, (call_us.value,) * 10, None, 1)


@dataclass
class Packing:
    """A trial whose weight has to be packed."""

    candidate: Candidate = field(
        default_factory=lambda: Candidate(PROBLEM, "made", "up", (), Arithmetic.FP32, 0, True, Source.RULE)
    )
    look_us: float = 0.0
    plan: Any = field(default_factory=lambda: SimpleNamespace(workspace_bytes=0))

    def call(self) -> Any:
        return lambda: None

    preparation = call


def measured(patch: pytest.MonkeyPatch, run: Interval, pack: Interval, look_us: float = 0.0) -> Measurement | None:
    def timed(calls: Mapping[str, Any], **_: Any) -> dict[str, Timing]:
        return {name: timing(run if name.startswith("run") else pack) for name in calls}

    patch.setattr(side_by_side, "measure_calls", timed)
    bench: Any = SimpleNamespace(device=torch.device("cpu"), facts=CPU, mode="quick")
    trial: Any = Packing(look_us=look_us)
    found = Stopwatch(bench).heat([trial], 1e3)
    return found[trial.candidate].measurement if found else None


def test_a_packing_time_that_drowned_in_noise_makes_no_call_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    made = measured(monkeypatch, RUN, PACK)
    assert made is not None
    assert made.prepare_us == Interval(0.0, 0.0, 20.0)
    assert made.call_us(weights_change=True) == Interval(50.0, 45.0, 75.0)


def test_a_candidate_has_its_ratio_to_pytorchs_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work makes rounds three times as long, for both; packing counts if weights change."""
    shaken = [100.0, 300.0] * 5
    slopes = {
        "run torch/default": shaken,
        "run made/up": [each / 2 for each in shaken],
        "pack made/up": [10.0, 30.0] * 5,
    }

    def timed(calls: Mapping[str, Any], **_: Any) -> dict[str, Timing]:
        us = Interval(200.0, 50.0, 350.0)
        return {name: Timing(us, 1.0, 20, tuple(slopes[name]), None, 1, disturbed=True) for name in calls}

    monkeypatch.setattr(side_by_side, "measure_calls", timed)
    bench: Any = SimpleNamespace(device=torch.device("cpu"), facts=CPU, mode="quick")
    candidate = Candidate(PROBLEM, "torch", "default", (), Arithmetic.FP32, 0, True, Source.RULE)
    own: Any = Packing(candidate)
    own.preparation = lambda: None
    trial: Any = Packing()
    found = Stopwatch(bench).heat([own, trial], 1e3)
    ours, torchs = found[trial.candidate].measurement, found[candidate].measurement
    assert ours is not None
    assert torchs is not None
    assert torchs.paired is None
    assert ours.paired is not None
    assert (ours.paired.own, ours.paired.rounds) == ("torch/default", 10)
    assert ours.paired.ratio.low == pytest.approx(ours.paired.ratio.high), "the slowdown of both cancels"
    assert ours.paired.of_call(weights_change=True).value == pytest.approx(0.6)
    assert ours.paired.of_call(weights_change=False).value == pytest.approx(0.5)
    slopes["run made/up"] = [-1.0, 50.0] * 5  # noise hides one end of the ratio
    hidden = Stopwatch(bench).heat([own, trial], 1e3)[trial.candidate].measurement
    assert hidden is not None
    assert hidden.paired is None


@pytest.mark.parametrize(("look_us", "expected"), [(0.0, None), (70.0, 70.0)])
def test_a_slope_that_is_no_time_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch, look_us: float, expected: float | None
) -> None:
    made = measured(monkeypatch, Interval(-3.0, -40.0, 30.0), PACK, look_us)
    assert (None if made is None else made.device_us.value) == expected


def test_what_a_look_tells_of_a_candidate_has_its_packing() -> None:
    bench: Any = SimpleNamespace(device=torch.device("cpu"), facts=CPU, mode="full")
    trial: Any = Packing()
    found = Stopwatch(bench).of_look(QuickTiming(trial, (15.0, 16.0), 120.0, 5.0), None).measurement
    assert found is not None
    assert found.device_us.value == 15.5
    assert found.prepare_us == Interval(5.0, 5.0, 5.0)
    assert dict(found.conditions)["clock"] == "WallClock, one call at a time"


@pytest.mark.parametrize(
    ("look", "on", "needed_us"),
    [
        (QuickTiming(cast(Any, None), (500.0,), 20.0), "cpu", 4 * 500.0),
        (QuickTiming(cast(Any, None), (500.0,), 20.0), "cuda", 4 * 500.0 + 10 * 20.0 + 4000.0),
        (QuickTiming(cast(Any, None), (10.0,), 20.0), "cuda", 4 * 20.0 + 100 * 20.0 + 4000.0),
        (QuickTiming(cast(Any, None), (500.0,), 20.0, 500.0), "cuda", 2 * (4 * 500.0 + 10 * 20.0 + 4000.0)),
    ],
)
def test_what_a_heat_needs(look: QuickTiming, on: str, needed_us: float) -> None:
    """On a GPU graphs are captured, for packing as well, of so many calls that a sample is long enough."""
    assert heat_us(look, 4, on) == needed_us
