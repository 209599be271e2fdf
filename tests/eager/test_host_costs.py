"""Host costs are measured once per machine and kept; a CPU has no launches of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import convwright as cw
from convwright.core.host_costs import HostCosts
from convwright.core.policy import Policy
from convwright.eager import decision
from convwright.eager import host_costs as room
from convwright.eager.host_costs import eager_rule, fact_name, host_costs, measured
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning.session import session
from eager.prefer import GEMM, prefer, randn

CPU = device_facts("cpu")


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    room.forget()
    yield
    room.forget()


def test_they_are_measured() -> None:
    costs = measured(CPU)
    assert 0.5 < costs.own_us < 1e4
    assert costs.node_us > 0.0
    assert costs.launch_us == costs.engine_us == costs.own_us, "nothing of ours is launched on a CPU"
    assert costs.next_launch_us == 0.0


def test_a_callers_modes_do_not_bear_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call may be made in inference mode, or where another dtype or device is the default."""
    seen: list[torch.dtype] = []
    own = room.problem_of
    monkeypatch.setattr(room, "problem_of", lambda x, w: seen.append(x.dtype) or own(x, w))
    with torch.inference_mode(), torch.device("meta"):
        torch.set_default_dtype(torch.float64)
        try:
            assert measured(CPU).node_us >= 0.0
        finally:
            torch.set_default_dtype(torch.float32)
    assert seen == [torch.float32]


def test_what_was_chosen_runs_whatever_modes_are_on() -> None:
    x, w, ran = randn(1, 4, 6, 6), randn(4, 4, 3, 3), list[int]()
    with torch.device("cpu"):
        room._dispatched(lambda x, w, bias: ran.append(1) or x, x, w)()
    assert ran == [1]


def test_they_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    costs = HostCosts(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    monkeypatch.setattr(room, "measured", lambda device: made.append(device) or costs)
    assert host_costs(CPU) == host_costs(CPU) == costs
    room.forget()  # as in another process
    assert host_costs(CPU) == costs
    assert made == [CPU]


@pytest.mark.parametrize("body", ["[]", "nonsense", '{"own_us": null}'])
def test_what_another_version_kept_is_measured_again(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    costs = HostCosts(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    monkeypatch.setattr(room, "measured", lambda device: made.append(device) or costs)
    session().store.record_fact(CPU.key, fact_name(), body)
    assert host_costs(CPU) == costs
    assert made == [CPU]


def test_on_a_cpu_a_call_asks_for_a_tenth_and_weighs_no_launches() -> None:
    rule = eager_rule(CPU, Policy())
    assert (rule.tie, rule.extra_us) == (0.10, None)


def test_a_callers_hooks_for_saved_tensors_see_nothing_of_it() -> None:
    seen: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        measured(CPU)
    assert seen == []


@pytest.mark.parametrize(("node_us", "name"), [(1e9, "torch/default"), (1.0, GEMM)])
def test_a_step_that_does_not_save_enough_stays_with_pytorch(
    node_us: float, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    costs = HostCosts(10.0, 10.0, 10.0, 10.0, 0.0, 5.0, node_us)
    monkeypatch.setattr(decision, "host_costs", lambda device: costs)
    cw.conv2d(randn(1, 4, 6, 6), randn(4, 4, 3, 3, grad=True))
    choice = cw.last_choice()
    assert choice is not None
    assert choice.candidate.id == name
