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
from convwright.tuning.trials import heats
from convwright.tuning.trials.heats import Stopwatch
from convwright.tuning.trials.looks import Look
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
    launch_us: float = 0.0
    plan: Any = field(default_factory=lambda: SimpleNamespace(workspace_bytes=0))

    def call(self) -> Any:
        return lambda: None

    preparation = call


def measured(patch: pytest.MonkeyPatch, run: Interval, pack: Interval, look_us: float = 0.0) -> Measurement | None:
    def timed(calls: Mapping[str, Any], **_: Any) -> dict[str, Timing]:
        return {name: timing(run if name.startswith("run") else pack) for name in calls}

    patch.setattr(heats, "measure_calls", timed)
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


@pytest.mark.parametrize(
    ("look_us", "launch_us", "budget_us", "is_timed"),
    [(900.0, 9.0, 1e3, True), (5e3, 9.0, 1e3, False), (5e3, 9.0, 1e5, True), (5e3, 4e3, 1e3, True)],
)
def test_where_the_device_hides_it_the_hosts_time_has_to_fit_into_the_budget(
    look_us: float, launch_us: float, budget_us: float, is_timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(calls: Mapping[str, Any], **_: Any) -> dict[str, Timing]:
        return {name: timing(RUN) for name in calls}

    monkeypatch.setattr(heats, "measure_calls", timed)
    bench: Any = SimpleNamespace(device=torch.device("cpu"), facts=CPU, mode="quick")
    stopwatch, trial = Stopwatch(bench), cast(Any, Packing(look_us=look_us, launch_us=launch_us))
    stopwatch.host = cast(Any, "host")
    made = stopwatch.heat([trial], budget_us)[trial.candidate].measurement
    assert made is not None
    assert (made.host_us is not None) is is_timed


def test_what_a_look_tells_of_a_slow_candidate_has_its_host_and_packing_on_a_gpu_only() -> None:
    bench: Any = SimpleNamespace(device=torch.device("cpu"), facts=CPU, mode="full")
    trial: Any = Packing()
    look, stopwatch = Look(trial, (15.0, 16.0), 120.0, (5.0, 80.0)), Stopwatch(bench)
    on_cpu = stopwatch.of_look(look, None).measurement
    assert on_cpu is not None
    assert on_cpu.host_us is None
    stopwatch.host = cast(Any, "host")
    on_gpu = stopwatch.of_look(look, None).measurement
    assert on_gpu is not None
    assert on_gpu.host_us is not None
    assert dict(on_gpu.conditions)["clock"] == "events, one call at a time"


def test_the_host_is_timed_packing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(calls: Mapping[str, Any], clock: object, before: Mapping[str, Any], **_: Any) -> dict[str, Timing]:
        of_the_host = clock == "host"
        assert before.keys() == (calls.keys() if of_the_host else set())
        run, pack = (
            (Interval(9.0, 9.0, 9.0), Interval(25.0, 25.0, 25.0)) if of_the_host else (RUN, Interval(2.0, 2.0, 2.0))
        )
        return {name: timing(run if name.startswith("run") else pack) for name in calls}

    monkeypatch.setattr(heats, "measure_calls", timed)
    bench: Any = SimpleNamespace(device=torch.device("cpu"), facts=CPU, mode="quick")
    stopwatch, trial = Stopwatch(bench), cast(Any, Packing())
    stopwatch.host = cast(Any, "host")
    made = stopwatch.heat([trial], 1e3)[trial.candidate].measurement
    assert made is not None
    assert made.host_us == Interval(9.0, 9.0, 9.0)
    assert made.prepare_host_us == Interval(25.0, 25.0, 25.0)
