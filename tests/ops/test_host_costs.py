"""A choice serves on a GPU only if it is faster even with what finding it costs the host."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch

import convwright as cw
from convwright.core.finding import Interval
from convwright.core.policy import Objective, Policy
from convwright.ops.asking.request import Request
from convwright.ops.calls.call import Call
from convwright.ops.calls.form import CONV2D
from convwright.ops.deciding import decide
from convwright.ops.deciding.host_costs import HostCosts, host_costs
from convwright.ops.deciding.node_cost import node_host_us
from convwright.tuning import listing
from convwright.tuning.session import Choice
from ops.prefer import GEMM, count_calls, prefer, randn
from tuning.made import CPU, PROBLEM

GPU = replace(CPU, kind="cuda")


def choice(
    device_us: float, host_us: float | None, torch_device_us: float = 10.0, torch_host_us: float = 16.0
) -> Choice:
    """GEMM on a GPU, which has taken so long beside PyTorch's own call."""
    gemm = next(c for c in listing.candidates(listing.direct(PROBLEM, CPU, Policy())) if c.id == "reference/gemm")
    times = (device_us, torch_device_us, host_us, torch_host_us)
    return Choice(gemm, GPU, *(None if us is None else Interval(us, us, us) for us in times))


@pytest.fixture(autouse=True)
def _five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "host_costs", lambda kind: HostCosts(look_us=5.0, bias_us=4.0, own_us=16.0))
    monkeypatch.setattr(decide, "capturing", lambda device: False)


@pytest.mark.parametrize(
    ("device_us", "host_us", "is_worth_it"),
    [(5.0, 10.0, True), (5.0, 12.0, False), (5.0, 11.0, False), (30.0, 1.0, False), (5.0, None, True)],
)
def test_where_the_device_waits_it_is_the_host_that_counts(
    device_us: float, host_us: float | None, is_worth_it: bool
) -> None:
    assert decide._worth_a_look(choice(device_us, host_us)) is is_worth_it


def test_what_the_host_takes_has_to_be_known_well_enough() -> None:
    known = choice(5.0, 10.0)
    assert decide._worth_a_look(known)
    assert not decide._worth_a_look(replace(known, host_us=Interval(10.0, 9.0, 11.0)))
    assert not decide._worth_a_look(replace(known, torch_host_us=Interval(16.0, 15.0, 17.0)))
    assert decide._worth_a_look(replace(known, host_us=Interval(8.0, 6.0, 10.0)))


def test_times_of_two_samples_are_doubted_no_more_than_a_quarter() -> None:
    vague = replace(choice(5.0, 7.0), host_us=Interval(7.0, 1.0, 300.0), torch_host_us=Interval(18.0, 0.1, 40.0))
    assert decide._worth_a_look(vague)
    assert not decide._worth_a_look(replace(vague, host_us=Interval(7.5, 1.0, 300.0)))
    assert not decide._worth_a_look(replace(vague, torch_host_us=Interval(17.0, 0.1, 40.0)))


def test_a_bias_that_is_added_behind_takes_the_host_as_well() -> None:
    known = choice(5.0, 8.0)
    assert decide._worth_a_look(known, adds_bias=False)
    assert not decide._worth_a_look(known, adds_bias=True)
    assert decide._worth_a_look(choice(5.0, 8.0, torch_host_us=20.0), adds_bias=True)


def test_beside_compilers_what_a_host_seems_to_take_is_less() -> None:
    """A tiny convolution of PyTorch's takes 16 µs, so that no call of its can take 320."""
    assert decide._worth_a_look(choice(5.0, 160.0, torch_host_us=320.0))  # 16 and 5 of 32
    assert not decide._worth_a_look(choice(5.0, 270.0, torch_host_us=320.0))  # 27 and 5
    assert not decide._worth_a_look(choice(50.0, 160.0, 40.0, torch_host_us=320.0))  # the device's, where 40 are to win
    assert decide._worth_a_look(choice(35.0, 160.0, 40.0, torch_host_us=320.0))
    assert decide._worth_a_look(choice(5.0, 340.0, 60.0, torch_host_us=320.0))  # 34 and 5, and the device's 60


def test_inside_a_capture_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "capturing", lambda device: True)
    monkeypatch.setattr(decide, "host_costs", None)
    assert decide._worth_a_look(choice(5.0, 12.0))


def test_where_the_host_waits_it_is_the_device() -> None:
    assert decide._worth_a_look(choice(80.0, 40.0, torch_device_us=100.0))
    assert not decide._worth_a_look(choice(100.0, 2.0, torch_device_us=100.0))


@pytest.mark.parametrize(
    ("host_us", "is_worth_it"), [(10.0, True), (None, True), (26.0, False), (60.0, False), (20.0, True)]
)
def test_behind_a_node_the_host_pays_for_it_and_for_what_the_choices_take_longer(
    host_us: float | None, is_worth_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "node_host_us", lambda kind: (100.0, 80.0))
    step = (choice(30.0, host_us, 60.0), choice(30.0, 16.0, 50.0))  # 110 µs of the device's with PyTorch's own calls
    assert decide._worth_a_node(step) is is_worth_it


def test_a_node_is_never_said_to_be_cheaper_than_none() -> None:
    with_node_us, without_us = node_host_us("cpu")
    assert 1 < without_us <= with_node_us < 5000


def test_what_a_caller_has_set_has_no_part_in_what_a_node_costs() -> None:
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    node_host_us.cache_clear()
    with torch.autograd.graph.saved_tensors_hooks(pack, pack), torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        with_node_us, without_us = node_host_us("cpu")
    assert saved == []
    assert 1 < without_us <= with_node_us


def test_what_was_asked_for_is_not_weighed() -> None:
    x, w = torch.zeros(2, 4, 8, 8), torch.zeros(4, 4, 3, 3)

    def is_free(**asked: object) -> bool:
        request = Request(True, 1, 1, 1, 1, None, None, None)._replace(**asked)
        return decide._is_free(choice(5.0, 10.0), Call(CONV2D, x, w, None, None, None, request))

    assert is_free()
    assert is_free(policy=Policy(max_workspace_bytes=0))
    assert not is_free(algorithm="reference/gemm")
    for policy in (Policy(objective=Objective.DEVICE_TIME), Policy(arithmetic=("fp32",)), Policy(deterministic=True)):
        assert not is_free(policy=policy)


@pytest.mark.parametrize("policy", [Policy(objective=Objective.DEVICE_TIME), Policy(deterministic=True)])
def test_behind_a_node_what_was_asked_for_is_not_weighed_either(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    monkeypatch.setattr(decide, "_worth_a_node", lambda choices: False)
    called, x, w = count_calls(monkeypatch), randn(2, 4, 8, 8, grad=True), randn(4, 4, 3, 3, grad=True)
    cw.conv2d(x, w).sum().backward()
    assert called == []
    cw.conv2d(x, w, policy=policy).sum().backward()
    assert sorted(called) == ["backward_data", "backward_weight", "forward"]


def test_they_are_measured() -> None:
    costs = host_costs("cpu")
    assert all(0.1 < each < 2000 for each in costs)
    assert costs.look_us < costs.own_us
    assert host_costs("cpu") is costs


def test_scripts_take_no_other_function_for_the_one_that_was_measured() -> None:
    host_costs.cache_clear()
    host_costs("cpu")
    alive = {id(thing) for thing in gc.get_objects()}
    known = torch.jit._builtins._get_builtin_table()
    assert [name for key, name in known.items() if name.startswith("aten::conv") and key not in alive] == []
