"""Calls too long for a quick search: a longer one comes when they have taken twice as long, and once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.ops.calls.form import CONV2D
from convwright.ops.deciding import decide, earned
from convwright.settings import Mode
from convwright.tuning import session as sessions
from convwright.tuning.trials.contest import Contest
from ops.each_form import in_mode
from ops.prefer import GEMM, randn
from tuning.made import FakeTuner

OWN_US = 5e4
# As many calls as take twice what the search will take, behind the first, which waits, and the second, which decides.
EARNED = 2 + 120 - 1


class Tuner(FakeTuner):
    """Has no time for anything but PyTorch's own call in the budget of a quick search."""

    def __init__(self) -> None:
        super().__init__({GEMM: 10.0})
        self.budgets_us: list[float] = []
        self.own_us = OWN_US
        self.now_s = 0.0

    def __call__(self, candidates: Iterable[Candidate], contest: Contest) -> list[Finding]:
        total_us = contest.budget.total_us
        self.budgets_us.append(total_us)
        self.now_s += total_us / 1e6
        if total_us < 20 * self.own_us:
            assert contest.baseline is not None
            return [Finding(contest.baseline, note="was not timed", too_long_us=self.own_us)]
        return super().__call__(candidates, contest)


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tuner]:
    in_mode("quick", monkeypatch)
    made = Tuner().in_place(monkeypatch)
    monkeypatch.setattr(decide, "_proves", lambda choice, call: False)
    return made


def call(x: Tensor, w: Tensor, **asked: Any) -> str:
    y = cw.conv2d(x, w, padding=1, **asked)
    assert_close(y, F.conv2d(x, w, padding=1))
    choice = cw.last_choice()
    return "" if choice is None else choice.candidate.id


def test_a_longer_search_comes_behind_as_many_calls_as_take_twice_its_time_and_once(searches: Tuner) -> None:
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1)
    for _ in range(EARNED):
        call(x, w)
    assert searches.budgets_us == [2e4]
    assert call(x, w) == GEMM
    assert searches.budgets_us == [2e4, 60 * OWN_US]
    for _ in range(300):
        assert call(x, w) == GEMM
    assert len(searches.budgets_us) == 2


def test_what_a_longer_search_has_no_time_for_either_is_left_alone(
    searches: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches.own_us = 2e6
    monkeypatch.setattr(earned, "_MOST_US", 1e7)
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1)
    for _ in range(400):
        assert call(x, w) in ("", "torch/default")
    assert searches.budgets_us == [2e4, 1e7], "behind ten calls of 2 s"


def test_a_search_that_had_no_time_is_not_done_for_the_next_process(searches: Tuner) -> None:
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1)
    assert cw.find(x, w, padding=1, mode="quick").choice is None
    found = cw.find(x, w, padding=1, mode="quick", budget_us=60 * OWN_US)
    assert found.choice is not None
    assert found.choice.candidate.id == GEMM


def test_each_direction_earns_its_own(searches: Tuner) -> None:
    x, w = randn(1, 4, 8, 8, grad=True), randn(4, 4, 3, 3, seed=1, grad=True)
    expected = torch.autograd.grad(F.conv2d(x, w, padding=1).square().sum(), (x, w))
    for step in range(EARNED + 2):
        got = torch.autograd.grad(cw.conv2d(x, w, padding=1).square().sum(), (x, w))
        for mine, right in zip(got, expected, strict=True):
            assert_close(mine, right)
        assert len(searches.budgets_us) == (0 if step < 1 else 3 if step < EARNED else 6)


@pytest.mark.parametrize("asked", [{"algorithm": "torch/default"}, {"policy": Policy(deterministic=True)}])
def test_what_was_asked_for_is_not_chosen_anew(asked: dict[str, Any], searches: Tuner) -> None:
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1)
    for _ in range(EARNED + 10):
        call(x, w, **asked)
    assert len(searches.budgets_us) == len(asked) - ("algorithm" in asked)


def test_bias_activation_and_layout_are_as_before(searches: Tuner) -> None:
    x, w, b = randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last), randn(4, 4, 3, 3, seed=1), randn(4)
    expected = F.relu(F.conv2d(x, w, b))
    for _ in range(5):
        y = cw.conv2d(x, w, b, activation="relu")
        assert_close(y, expected)
        assert y.stride() == expected.stride()
    assert len(searches.budgets_us) == 1


def test_behind_an_activation_with_a_gradient_calls_earn_as_well(searches: Tuner) -> None:
    x, w = randn(1, 4, 8, 8, grad=True), randn(4, 4, 3, 3, seed=1)
    expected = F.silu(F.conv2d(x, w))
    for _ in range(EARNED + 3):
        assert_close(cw.conv2d(x, w, activation="silu"), expected)
    assert searches.budgets_us == [2e4, 2e4, 60 * OWN_US, 60 * OWN_US]


def test_only_quick_searches_are_too_short(searches: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    in_mode(Mode.HEURISTIC, monkeypatch)
    x, w = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1)
    for _ in range(EARNED + 10):
        call(x, w)
    assert searches.budgets_us == []


def test_layers_that_are_due_at_once_are_searched_one_after_the_other(
    searches: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass takes a second. A search of 3 s is followed by none for 6."""
    monkeypatch.setattr(sessions, "perf_counter", lambda: searches.now_s)
    x, layers = randn(1, 4, 8, 8), [randn(4, 4, taps, taps, seed=taps) for taps in (1, 3, 5)]
    longer = []
    for _ in range(EARNED + 18):
        searches.now_s += 1.0
        for w in layers:
            cw.conv2d(x, w)
        longer.append(sum(budget_us > 2e4 for budget_us in searches.budgets_us))
    assert longer[EARNED - 1 :] == [0, *[1] * 7, *[2] * 7, *[3] * 4]


def test_what_was_decided_for_others_stays(searches: Tuner) -> None:
    x, w, other = randn(1, 4, 8, 8), randn(4, 4, 3, 3, seed=1), randn(4, 4, 1, 1, seed=2)
    for _ in range(3):
        cw.conv2d(x, other)
    forgotten, kept = CONV2D.slots.forgotten, CONV2D.slots.latest[id(other)]
    for _ in range(EARNED + 3):
        call(x, w)
    assert len(searches.budgets_us) == 3
    assert CONV2D.slots.forgotten == forgotten
    assert CONV2D.slots.latest[id(other)] == kept


def test_under_autocast_calls_earn_as_well(searches: Tuner) -> None:
    x, w = randn(1, 4, 8, 8, dtype=torch.float32), randn(4, 4, 3, 3, seed=1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        for _ in range(EARNED + 3):
            y = cw.conv2d(x, w)
            assert y.dtype is torch.bfloat16
            assert_close(y, F.conv2d(x, w))
    assert searches.budgets_us == [2e4, 60 * OWN_US]
