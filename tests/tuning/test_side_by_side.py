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
