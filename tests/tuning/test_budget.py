"""Wall time is kept by whatever clock there is."""

from __future__ import annotations

from convwright.tuning.budget import Budget
from tuning.made_backend import Time


def test_what_is_spent_is_no_longer_left() -> None:
    time = Time()
    budget = Budget(100.0, now_us=time)
    time.now_us = 30.0
    assert (budget.spent_us, budget.left_us) == (30.0, 70.0)
    assert budget.has(0.7)
    assert not budget.has(0.71)
    half = budget.part(0.5)
    assert half.left_us == 35.0
    time.now_us = 130.0
    assert budget.left_us == -30.0
    assert budget.part(0.5).total_us == 0.0


def test_what_is_excused_comes_on_top_and_no_more_of_it_than_is_to_be_left() -> None:
    time = Time()
    budget = Budget(100.0, now_us=time)
    time.now_us = 30.0
    budget.leave(0.4)
    assert (budget.excused_us, budget.left_us) == (0.0, 70.0)
    time.now_us = 540.0
    budget.leave(0.4)
    assert (budget.excused_us, budget.left_us) == (480.0, 40.0)
    time.now_us = 550.0
    budget.leave(0.4)
    assert (budget.excused_us, budget.left_us) == (490.0, 40.0)


def test_what_happens_in_a_pause_costs_nothing() -> None:
    time = Time()
    budget = Budget(100.0, now_us=time)
    time.now_us = 10.0
    with budget.paused():
        time.now_us = 1010.0
    assert budget.spent_us == 10.0


def test_a_budget_stretches_as_far_as_it_may_and_never_shrinks() -> None:
    time = Time()
    budget = Budget(100.0, most_us=300.0, now_us=time)
    for needed_us, total_us in ((50.0, 100.0), (200.0, 200.0), (150.0, 200.0), (1000.0, 300.0)):
        budget.stretch(needed_us)
        assert budget.total_us == total_us
    fixed = Budget(100.0, now_us=time)
    fixed.stretch(200.0)
    assert fixed.total_us == 100.0
