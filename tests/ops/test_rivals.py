"""What seemed far better beside other work is tried in use on a CPU, and serves where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.core.finding import Measurement
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.ops.deciding import decide
from convwright.ops.running import proving
from ops.each_form import in_mode
from ops.prefer import GEMM, count_calls, randn
from tuning.made import FakeTuner

X, W = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1)


class Disturbed(FakeTuner):
    """All that it measures is in doubt but for PyTorch's own call."""

    def _measured(self, each: Candidate) -> Measurement:
        measured = super()._measured(each)
        own = each.id == "torch/default"
        return measured if own else replace(measured, doubt="unstable: other work had the cores")


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> Disturbed:
    in_mode("quick", monkeypatch)
    return Disturbed({GEMM: 10.0}).in_place(monkeypatch)


def proved(gain_ns: float, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trials end after three pairs with this gain."""
    monkeypatch.setattr(proving, "gained_ns", lambda ours, own: gain_ns if len(ours) >= 3 else None)
    return count_calls(monkeypatch)


def call(**asked: Any) -> Tensor:
    y = cw.conv2d(X, W, padding=1, **asked)
    assert_close(y, F.conv2d(X, W, padding=1))
    return y


def test_it_serves_where_it_is_faster_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    called = proved(300.0, monkeypatch)
    for _ in range(20):
        call()
    called.clear()
    for _ in range(10):
        call()
    assert len(called) == 10
    choice = cw.last_choice()
    assert choice is not None
    assert choice.candidate.id == GEMM


def test_pytorchs_own_call_serves_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    called = proved(0.0, monkeypatch)
    for _ in range(20):
        call()
    assert called
    called.clear()
    for _ in range(10):
        call()
    assert called == []
    choice = cw.last_choice()
    assert choice is not None
    assert choice.is_torch


@pytest.mark.parametrize("asked", [{"algorithm": "torch/default"}, {"policy": Policy(deterministic=True)}])
def test_what_is_asked_for_is_not_tried(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    called = proved(300.0, monkeypatch)
    for _ in range(20):
        call(**asked)
    assert called == []


def test_algorithms_around_a_call_leave_nothing_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    called = proved(300.0, monkeypatch)
    with cw.algorithms(backward_weight="torch/default"):
        for _ in range(20):
            call()
    assert called == []


def test_gradients_are_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    called = proved(300.0, monkeypatch)
    monkeypatch.setattr(decide, "_worth_a_node", lambda choices: True)
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    expected = torch.autograd.grad(F.conv2d(x, w, padding=1).square().sum(), (x, w))
    for _ in range(20):
        got = torch.autograd.grad(cw.conv2d(x, w, padding=1).square().sum(), (x, w))
        for mine, right in zip(got, expected, strict=True):
            assert_close(mine, right)
    assert {"forward", "backward_weight"} <= set(called)


def test_nothing_of_it_is_chosen_for_whoever_asks_for_a_plan() -> None:
    for _ in range(3):
        call()
    assert cw.plan(ConvProblem.of(X.shape, W.shape, padding=1, dtype="fp64")).candidate.id == "torch/default"
