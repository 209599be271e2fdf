"""What a first look tells of the time that is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch

from convwright.core.policy import Objective, Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.trials import trial as trials
from convwright.tuning.trials.quick_timing import QuickTiming, QuickTimings
from convwright.tuning.trials.search_input import NO_HOOKS
from convwright.tuning.trials.trial import Bench, Call, Trial
from tuning.made import CPU

DEVICE = Policy(objective=Objective.DEVICE_TIME)


def look(*runs_us: float, host_us: float = 0.0, packing_us: float = 0.0) -> QuickTiming:
    trial: Any = None
    return QuickTiming(trial, runs_us, host_us, packing_us)


@pytest.mark.parametrize(
    ("seen", "policy", "cost_us"),
    [
        (look(9.0, 7.0), Policy(), 7.0),
        (look(7.0, host_us=40.0), Policy(), 7.0),
        (look(7.0, host_us=9.0, packing_us=3.0), Policy(), 10.0),
        (look(7.0, host_us=9.0, packing_us=3.0), Policy(weights=Weights.CONSTANT), 7.0),
    ],
)
def test_what_counts_is_the_device_and_packing_where_weights_change(
    seen: QuickTiming, policy: Policy, cost_us: float
) -> None:
    assert seen.cost_us(policy) == cost_us


def test_many_calls_take_as_long_as_the_slower_of_device_and_host() -> None:
    assert look(7.0, host_us=40.0).call_us == 40.0
    assert look(90.0, host_us=40.0).call_us == 90.0


class Gpu:
    """One on which a call launches as told, in microseconds of the host and until the device has ended it; nothing else
    takes time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *calls_us: tuple[float, float]) -> None:
        self.now_us, self.calls_us = 0.0, iter(calls_us)
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(QuickTimings, "_launched_us", lambda looks, call: self._launched())
        monkeypatch.setattr(QuickTimings, "_apart", lambda looks, call, host_us: ((40.0,), host_us))
        bench: Any = SimpleNamespace(device=torch.device("cuda"))
        self.budget = Budget(2e6, now_us=lambda: self.now_us)
        self.looks = QuickTimings(bench, self.budget, DEVICE, NO_HOOKS.trying, patience_us=4e4)

    def _launched(self) -> tuple[float, float]:
        host_us, run_us = next(self.calls_us)
        self.now_us += run_us
        return host_us, run_us

    def look(self, backend: str, algorithm: str) -> QuickTiming:
        candidate = SimpleNamespace(backend=backend, algorithm=algorithm)
        trial: Any = SimpleNamespace(candidate=candidate, preparation=lambda: None)
        return self.looks._on_gpu(trial, lambda: torch.empty(0))


LOADED = (1.9e6, 1.9e6), (20.0, 60.0), (20.0, 60.0)


def test_what_is_loaded_for_pytorchs_own_call_is_no_cost_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, *LOADED)
    look = gpu.look("torch", "default")
    assert (look.look_us, look.cold) == (40.0, False)
    assert gpu.budget.spent_us == pytest.approx(180.0), "three calls, as if nothing had been loaded"


def test_what_is_loaded_for_others_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, *LOADED)
    assert gpu.look("torch", "cudnn").cold
    assert gpu.budget.spent_us == pytest.approx(1.9e6)


def test_a_call_that_takes_the_device_long_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, (1e6, 1.9e6))
    look = gpu.look("torch", "default")
    assert (look.look_us, look.cold) == (1.9e6, True)
    assert gpu.budget.spent_us == pytest.approx(1.9e6)


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[ref[Call]]:
    """The calls that trials have made, which hold packed weights and workspaces."""
    made, seen = Trial._made, list[ref[Call]]()

    def noted(self: Trial) -> Call:
        call = made(self)
        seen.append(ref(call))
        return call

    monkeypatch.setattr(Trial, "_made", noted)
    return seen


def test_what_was_looked_at_keeps_no_packed_weight_and_no_workspace(bound: list[ref[Call]]) -> None:
    problem, policy = ConvProblem.parse("ic16ih8oc16kh3ph1"), Policy()
    bench = Bench(problem, CPU, Mode.FULL, seed=0)
    looks = QuickTimings(bench, Budget(1e9), policy, NO_HOOKS.trying)
    listed = listing.candidates(listing.direct(problem, CPU, policy))
    for place, candidate in enumerate(listed):
        looks.at(candidate)
        assert len(bound) == place + 1
        assert [call for call in bound if call() is not None] == []
    again = looks.looked[listed[-1]].trial
    assert again.call() is again.call()
    torch.testing.assert_close(again.call()(), looks.looked[listed[0]].trial.call()(), rtol=1e-3, atol=1e-3)


def test_a_workspace_that_grows_is_not_held_beside_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(ConvProblem.parse("ic4ih8oc4kh3ph1"), CPU, Mode.FULL, seed=0)
    held = bench.workspace(1000)
    before, seen = ref(bench._workspace), list[bool]()
    del held

    @contextmanager
    def needing(what: str) -> Iterator[None]:
        seen.append(before() is None)
        yield

    monkeypatch.setattr(trials, "needing", needing)
    grown = bench.workspace(2000)
    assert grown is not None
    assert (seen, grown.numel()) == ([True], 2000)
